"""swiglu and mlp in plain JAX, and their gradients; the same rounding points as the kernels.

Arguments are x (M, K), w_gate and w_up (K, N), w_down (N, K_out).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def forward(x: Array, gate: Array, up: Array, down: Array | None = None) -> Array:
    """swiglu, or mlp where there is `down`."""
    hidden = _rounded(_swiglu(_product(x, gate), _product(x, up)))
    return hidden if down is None else product(hidden, down)


def product(x: Array, weight: Array) -> Array:
    """x @ weight, summed in FP32 and rounded once."""
    return _product(x, weight).astype(jnp.bfloat16)


def gradients(arguments: tuple[Array, ...], cotangent: Array) -> tuple[Array, ...]:
    """Of `forward`'s arguments. The activation is computed again; sums are FP32.

    What enters a product is rounded to BF16, as `cotangent` is.
    """
    x, gate, up, *down = arguments
    gate_product, up_product = _product(x, gate), _product(x, up)
    of_down: tuple[Array, ...] = ()
    if down:
        hidden = _rounded(_swiglu(gate_product, up_product))
        of_down = (product(hidden.T, cotangent),)
        of_hidden = _product(cotangent, down[0].T)
    else:
        of_hidden = cotangent.astype(jnp.float32)
    sigmoid = jax.nn.sigmoid(gate_product)
    silu = gate_product * sigmoid
    of_gate = (of_hidden * up_product * (sigmoid + silu * (1 - sigmoid))).astype(jnp.bfloat16)
    of_up = (of_hidden * silu).astype(jnp.bfloat16)
    of_x = (_product(of_gate, gate.T) + _product(of_up, up.T)).astype(jnp.bfloat16)
    return of_x, product(x.T, of_gate), product(x.T, of_up), *of_down


def _product(x: Array, weight: Array) -> Array:
    return jnp.matmul(x, weight, preferred_element_type=jnp.float32)


def _swiglu(gate: Array, up: Array) -> Array:
    return gate * jax.nn.sigmoid(gate) * up


def _rounded(values: Array) -> Array:
    """To BF16, where XLA may otherwise keep FP32 between two operations."""
    return jax.lax.reduce_precision(values, exponent_bits=8, mantissa_bits=7).astype(jnp.bfloat16)
