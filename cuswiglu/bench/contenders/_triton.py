"""flash-swiglu-mlp: Triton, gate and up fused. Tunes 32 configurations in each cell."""

from __future__ import annotations

from . import _torch
from .base import Contender, Found, Runner, absent
from .inputs import Inputs

NAME = "flash-swiglu-mlp"


def gate_up() -> Found:
    """Find the forward kernel of gate and up that the package runs without gradients."""
    reason = _torch.why_missing()
    if reason:
        return absent([NAME], reason)
    try:
        import flash_swiglu_mlp.ops  # noqa: F401
    except Exception as error:
        return absent([NAME], f"flash_swiglu_mlp cannot be imported: {error}")
    return Found([Contender(NAME, _make)])


def _make(inputs: Inputs) -> Runner:
    from flash_swiglu_mlp.ops import gemm_swiglu

    (x,) = _torch.tensors([inputs.x[None]])
    gate, up = _torch.tensors(inputs.w_gate), _torch.tensors(inputs.w_up)
    return _torch.runner(
        lambda number: gemm_swiglu(x, gate[number], up[number], 1.0, store_preact=False)[0][0]
    )
