"""The reference on the CPU, in NumPy: FP32 products, rounded where the kernels round."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..problem.activations import SILU, Activation

Array = npt.NDArray[Any]


def swiglu(
    x: Array,
    gate: Array,
    up: Array,
    out: Array,
    *,
    activation: Activation = SILU,
    biases: tuple[Array | None, ...] = (),
) -> None:
    """Compute activation(x @ gate + b_gate, x @ up + b_up) into `out`.

    Parameters
    ----------
    x : (M, K) array
    gate, up : (K, N) array
    out : (M, N) array
        Any strides. Sums and the activation are FP32; one rounding to out's dtype.
    activation : Activation
    biases : (b_gate, b_up), or none
        (N,) arrays, or None.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        products = [_product(x, gate), _product(x, up)]
        for product, bias in zip(products, biases, strict=False):
            _add(product, bias)
        out[...] = activation(np, *products).astype(out.dtype)


def matmul(x: Array, weight: Array, out: Array, *, biases: tuple[Array | None, ...] = ()) -> None:
    """Compute x @ weight plus the biases that are not None in FP32, rounded once into `out`."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = _product(x, weight)
        for bias in biases:
            _add(product, bias)
        out[...] = product.astype(out.dtype)


def _product(x: Array, weight: Array) -> Array:
    product: Array = x.astype(np.float32) @ weight.astype(np.float32)
    return product


def _add(product: Array, bias: Array | None) -> None:
    if bias is not None:
        product += bias.astype(np.float32)
