"""How far a result is from an FP64 reference; for NumPy and CuPy arrays alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes


@dataclass(frozen=True)
class Accuracy:
    """`relative_error` is ||found - expected|| / ||expected||; `within_ulp` the share of elements
    at most one BF16 ulp from the correctly rounded reference."""

    relative_error: float
    within_ulp: float


def mlp_reference(xp: Any, x: Any, gate: Any, up: Any, down: Any) -> Any:
    """The MLP in FP64, its intermediate rounded to BF16 as the contract says.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (M, K); gate, up : (K, N); down : (N, K_out)

    Returns
    -------
    (M, K_out) array of float64
    """
    x64 = x.astype(xp.float64)
    product = x64 @ gate.astype(xp.float64)
    hidden = product / (1 + xp.exp(-product)) * (x64 @ up.astype(xp.float64))
    return hidden.astype(ml_dtypes.bfloat16).astype(xp.float64) @ down.astype(xp.float64)


def ordered(xp: Any, bf16: Any) -> Any:
    """BF16 patterns as integers in the order of the numbers: neighbours differ by one."""
    bits = bf16.view(xp.int16).astype(xp.int32)
    return xp.where(bits < 0, -(bits & 0x7FFF), bits)


def compare(xp: Any, found: Any, expected: Any) -> Accuracy:
    """Compare BF16 `found` with FP64 `expected`, of the same shape; NaN is never close."""
    error = xp.linalg.norm(found.astype(xp.float64) - expected) / xp.linalg.norm(expected)
    rounded = expected.astype(ml_dtypes.bfloat16)
    ulps = xp.abs(ordered(xp, found) - ordered(xp, rounded))
    return Accuracy(float(error), float((ulps <= 1).mean()))
