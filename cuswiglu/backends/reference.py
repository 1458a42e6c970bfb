"""The reference on the CPU, in NumPy: FP32 products of BF16 inputs, same rounding points."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def silu(x: Array) -> Array:
    """x * sigmoid(x) in x's precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        result: Array = x / (1 + np.exp(-x))
    return result


def swiglu(x: Array, gate: Array, up: Array, out: Array) -> None:
    """silu(x @ gate) * (x @ up), written to `out`.

    Parameters
    ----------
    x : (M, K) array
    gate, up : (K, N) array
    out : (M, N) array
        Any strides. The products and the activation are FP32; one rounding to out's dtype.
    """
    x32 = x.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = (silu(x32 @ gate.astype(np.float32)) * (x32 @ up.astype(np.float32))).astype(
            out.dtype
        )


def matmul(x: Array, weight: Array, out: Array) -> None:
    """x @ weight with FP32 accumulation, rounded once into `out`."""
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = (x.astype(np.float32) @ weight.astype(np.float32)).astype(out.dtype)
