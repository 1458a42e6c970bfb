"""Who takes part in the suite `decode`: gate and up, and the whole MLP, of few tokens.

Calls of ours load weights ahead, as those of a `GatedMLP` do from the second one on.
"""

from __future__ import annotations

import functools

from ... import problem
from ...api.gated_mlp import GatedMLP
from ...runtime import plan
from ...selection import select
from ..inputs import Inputs
from . import _own, _torch
from .base import Contender, Found, Runner, absent


def ours() -> Found:
    """Gate and up, cuBLAS's bare product, the MLP with and without batch invariance, unfused."""
    return Found(
        [
            Contender("gate-up", _gate_up),
            Contender("bare", _own.bare, "product"),
            Contender("mlp", functools.partial(_mlp, None), "mlp"),
            Contender("mlp-batch", functools.partial(_mlp, "batch"), "mlp"),
            Contender("fused", _own.fused, "mlp"),
        ]
    )


def torch_mlp() -> Found:
    """torch-eager and torch-compile of the whole MLP."""
    names = ["torch-eager", "torch-compile"]
    reason = _torch.why_missing()
    if reason:
        return absent(names, reason)
    return Found(
        [
            Contender(names[0], _torch.eager_mlp, "mlp"),
            Contender(names[1], _torch.compiled_mlp, "mlp"),
        ]
    )


def _gate_up(inputs: Inputs) -> Runner:
    """The first of the two launches of a `GatedMLP`'s call."""

    def make(asked: problem.Problem) -> plan.Plan:
        choice = select.select(asked, plan.device_info(asked.device.index))
        if choice.kernel is None:
            return plan.plan_for(asked)
        return plan.kernel_plan(asked, choice, weights_ahead=True)

    return _own.by_plan(inputs, make)


def _mlp(deterministic: str | None, inputs: Inputs) -> Runner:
    """An object for each set of weights, called once before: what is checked and timed is later."""
    x, out = inputs.x, inputs.result
    layers = [GatedMLP(*weights, deterministic=deterministic) for weights in inputs.layers]
    for layer in layers:
        layer(x, out=out)
    return _own.runner(lambda number: layers[number](x, out=out), out)
