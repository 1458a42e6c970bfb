"""QuACK (quack-kernels), tuned and by default, on weights with gate and up rows interleaved."""

from __future__ import annotations

from . import _torch
from .base import Contender, Found, Runner, absent
from .inputs import Inputs


def gate_up() -> Found:
    """Find quack, which tunes for seconds in each cell, and first compiles, and quack-default."""
    names = ["quack", "quack-default"]
    reason = _torch.why_missing()
    if reason:
        return absent(names, reason)
    try:
        import quack.gemm_interface  # noqa: F401
    except Exception as error:
        return absent(names, f"quack.gemm_interface cannot be imported: {error}")
    return Found(
        [
            Contender(names[0], lambda inputs: _make(inputs, tuned=True)),
            Contender(names[1], lambda inputs: _make(inputs, tuned=False)),
        ]
    )


def _make(inputs: Inputs, *, tuned: bool) -> Runner:
    from quack.gemm_interface import gemm_act

    (x,) = _torch.tensors([inputs.x])
    weights = [w.T for w in _torch.tensors(inputs.interleaved)]
    return _torch.runner(
        lambda number: gemm_act(
            x, weights[number], activation="swiglu", store_preact=False, tuned=tuned
        )[1]
    )
