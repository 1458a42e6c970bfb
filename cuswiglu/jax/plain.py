"""Plain JAX for swiglu and mlp, and their gradients; the same rounding points as the kernels.

Arguments are x (M, K), w_gate and w_up (K, N), w_down (N, K_out), and the biases that there are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..problem.activations import TANH_CUBE, TANH_SCALE, Activation, ClampedSwiGLU

Array = Any

#: Activations of gate alone.
_GATES = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": lambda gate: gate
    * jax.nn.sigmoid(2 * TANH_SCALE * (gate + TANH_CUBE * gate * gate * gate)),
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "identity": lambda gate: gate,
}


@dataclass(frozen=True)
class Operation:
    """Operation to compute: its activation, and which arguments it has.

    `names` are those of the arguments behind x, in order: w_gate, w_up, w_down for mlp, and the
    biases that were given.
    """

    activation: Activation
    names: tuple[str, ...]

    def named(self, others: tuple[Array, ...]) -> dict[str, Array]:
        """Name the arguments behind x."""
        return dict(zip(self.names, others, strict=True))


def forward(operation: Operation, x: Array, *others: Array) -> Array:
    """Compute swiglu, or mlp where there is w_down."""
    given = operation.named(others)
    hidden = _rounded(_activated(operation.activation, *_sums(x, given)), x.dtype)
    return down(hidden, given) if "w_down" in given else hidden


def down(hidden: Array, given: dict[str, Array]) -> Array:
    """Compute hidden @ w_down + b_down, summed in FP32 and rounded once."""
    return _sum(hidden, given["w_down"], given.get("b_down")).astype(hidden.dtype)


def gradients(
    operation: Operation, arguments: tuple[Array, ...], cotangent: Array
) -> tuple[Array, ...]:
    """Compute the gradients of `forward`'s arguments: the activation again, sums in FP32.

    What enters a product is rounded to x's dtype, as `cotangent` is.
    """
    x, *others = arguments
    given, found = operation.named(tuple(others)), dict[str, Array]()
    activation = functools.partial(_activated, operation.activation)
    hidden, backward = jax.vjp(activation, *_sums(x, given))
    if "w_down" in given:
        found["w_down"] = _product(_rounded(hidden, x.dtype).T, cotangent)
        found["b_down"] = _over_tokens(cotangent)
        of_hidden = _product(cotangent, given["w_down"].T)
    else:
        of_hidden = cotangent.astype(jnp.float32)
    of_gate, of_up = backward(of_hidden)
    found["b_gate"], found["b_up"] = _over_tokens(of_gate), _over_tokens(of_up)
    of_gate, of_up = of_gate.astype(x.dtype), of_up.astype(x.dtype)
    found["w_gate"], found["w_up"] = _product(x.T, of_gate), _product(x.T, of_up)
    found["x"] = _product(of_gate, given["w_gate"].T) + _product(of_up, given["w_up"].T)
    return tuple(found[name].astype(x.dtype) for name in ("x", *operation.names))


def _sums(x: Array, given: dict[str, Array]) -> tuple[Array, Array]:
    """Sum gate's and up's products, before the activation."""
    gate, up = (_sum(x, given[f"w_{name}"], given.get(f"b_{name}")) for name in ("gate", "up"))
    return gate, up


def _sum(x: Array, weight: Array, bias: Array | None) -> Array:
    product = _product(x, weight)
    return product if bias is None else product + bias.astype(jnp.float32)


def _product(x: Array, weight: Array) -> Array:
    return jnp.matmul(x, weight, preferred_element_type=jnp.float32)


def _over_tokens(values: Array) -> Array:
    return values.sum(0, dtype=jnp.float32)


def _activated(activation: Activation, gate: Array, up: Array) -> Array:
    if isinstance(activation, ClampedSwiGLU):
        limit = activation.limit
        gate = jnp.where(gate > limit, limit, gate)
        up = jnp.where(up > limit, limit, jnp.where(up < -limit, -limit, up))
        return gate * jax.nn.sigmoid(activation.alpha * gate) * (up + 1)
    return _GATES[activation.name](gate) * up


def _rounded(values: Array, dtype: Any) -> Array:
    """Round to BF16 or FP16, where XLA may otherwise keep FP32 between two operations."""
    if dtype == jnp.bfloat16:
        return jax.lax.reduce_precision(values, exponent_bits=8, mantissa_bits=7).astype(dtype)
    # reduce_precision would flush FP16's subnormals.
    return jax.lax.optimization_barrier(values.astype(dtype))
