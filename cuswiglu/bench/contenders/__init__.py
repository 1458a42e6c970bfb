"""Contenders: who takes part in a suite, and who is missing and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .base import Contender, Found, Runner

__all__ = ["Contender", "Found", "Runner", "find"]


def find(suite: str, also: Sequence[Path] = ()) -> Found:
    """Everybody who can take part on this machine; imports what is installed.

    Parameters
    ----------
    suite : str
        One of `cells.SUITES`.
    also : sequence of Path
        Folders with a manifest of more kernels of ours, which selection never takes.
    """
    from . import _activations, _decode, _host, _jax, _jax_stack, _own, _quack, _torch, _triton

    if suite == "mlp":
        parts = [_own.mlp(), _torch.mlp()]
    elif suite == "decode":
        parts = [_decode.ours(), _decode.torch_mlp()]
    elif suite == "activations":
        parts = [_activations.ours()]
    elif suite == "host":
        parts = [_host.calls(), _host.torch_calls()]
    elif suite == "jax":
        parts = [_jax_stack.stacks()]
    elif suite == "tensor-parallel":
        from .. import parallel

        parts = [parallel.programs()]
    elif suite == "random":
        parts = [_own.gate_up(), *map(_own.built, also)]
    else:
        parts = [
            _own.gate_up(),
            *map(_own.built, also),
            _torch.gate_up(),
            _jax.gate_up(),
            _quack.gate_up(),
            _triton.gate_up(),
        ]
    return Found(
        [contender for part in parts for contender in part.contenders],
        {name: reason for part in parts for name, reason in part.missing.items()},
    )
