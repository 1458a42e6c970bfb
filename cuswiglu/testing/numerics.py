"""How far a result is from an FP64 reference; for NumPy and CuPy arrays alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..problem.activations import SILU, Activation


@dataclass(frozen=True)
class Accuracy:
    """`relative_error` is ||found - expected|| / ||expected||; `within_ulp` the share of elements
    at most one ulp of its dtype from the correctly rounded reference.
    """

    relative_error: float
    within_ulp: float


def mlp_reference(
    xp: Any,
    x: Any,
    gate: Any,
    up: Any,
    down: Any,
    *,
    activation: Activation = SILU,
    biases: Sequence[Any] = (),
) -> Any:
    """The MLP in FP64, its intermediate rounded to x's dtype as the contract says.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (M, K); gate, up : (K, N); down : (N, K_out)
    activation : Activation
    biases : b_gate, b_up, b_down, or none
        (N,), (N,) and (K_out,), or None.

    Returns
    -------
    (M, K_out) array of float64
    """
    b_gate, b_up, b_down = biases or (None, None, None)
    gates, ups = _product(xp, x, gate, b_gate), _product(xp, x, up, b_up)
    hidden = activation(xp, gates, ups).astype(x.dtype)
    return _product(xp, hidden, down, b_down)


def _product(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    product = x.astype(xp.float64) @ weight.astype(xp.float64)
    return product if bias is None else product + bias.astype(xp.float64)


def ordered(xp: Any, numbers: Any) -> Any:
    """16-bit patterns as integers in the order of the numbers: neighbours differ by one."""
    bits = numbers.view(xp.int16).astype(xp.int32)
    return xp.where(bits < 0, -(bits & 0x7FFF), bits)


def compare(xp: Any, found: Any, expected: Any) -> Accuracy:
    """Compare `found` with FP64 `expected`, of the same shape; NaN is never close."""
    error = xp.linalg.norm(found.astype(xp.float64) - expected) / xp.linalg.norm(expected)
    rounded = expected.astype(found.dtype)
    ulps = xp.abs(ordered(xp, found) - ordered(xp, rounded))
    return Accuracy(float(error), float((ulps <= 1).mean()))
