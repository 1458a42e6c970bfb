"""The operation that JAX transforms: kernels where they apply, plain JAX elsewhere.

custom_vjp (gradients) around custom_vmap (batches become rows) around the choice, made while JAX
traces, between XLA's custom call and plain JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .. import plan, select
from ..arrays import Device
from ..select import DeviceInfo
from . import launch, plain
from .launch import Description

Array = Any


@functools.cache
def operation(layout: str, variant: str) -> Callable[..., Array]:
    """swiglu of x (M, K), w_gate and w_up (K, N), or mlp where w_down (N, K_out) is given too.

    Parameters
    ----------
    layout : str
        "k" if the weights are transposed views of matrices that lie along K and N, "n" otherwise.
    variant : str
        As in `cuswiglu.swiglu`.
    """

    forward: Any = jax.custom_batching.custom_vmap(functools.partial(_forward, layout, variant))

    def batched(size: int, in_batched: Any, x: Array, *weights: Array) -> tuple[Array, bool]:
        if any(in_batched[1:]):
            axes = [0 if batched else None for batched in in_batched]
            return jax.vmap(plain.forward, axes)(x, *weights), True
        m = x.shape[1]
        rows = forward(x.reshape(size * m, x.shape[2]), *weights)
        return rows.reshape(size, m, rows.shape[1]), True

    def cuswiglu(*arguments: Array) -> Array:
        return forward(*arguments)

    forward.def_vmap(batched)
    differentiable = jax.custom_vjp(cuswiglu)
    differentiable.defvjp(lambda *arguments: (forward(*arguments), arguments), plain.gradients)
    jitted: Callable[..., Array] = jax.jit(differentiable)  # outside of a jit, traced once a kind
    return jitted


def _forward(layout: str, variant: str, x: Array, *weights: Array) -> Array:
    sizes = [*x.shape, weights[0].shape[1], *(weight.shape[1] for weight in weights[2:])]
    made = choose(layout, variant, hopper(), *sizes)
    if made is None:
        return plain.forward(x, *weights)
    fused = functools.partial(_fused, made)
    return jax.lax.platform_dependent(x, *weights, cuda=fused, default=plain.forward)


def choose(
    layout: str, variant: str, device: DeviceInfo | None, m: int, k: int, n: int, k_out: int = 0
) -> Description | None:
    """The kernels to launch; None where plain JAX computes it all.

    Parameters
    ----------
    layout, variant : str
    device : DeviceInfo or None
        A Hopper GPU, if there is one.
    m, k, n : int
    k_out : int
        0 for swiglu.

    Raises
    ------
    ValueError
        If a kernel was asked for by name and there is no such GPU, or it cannot compute this.
    """
    if variant == select.PORTABLE:
        return None
    if device is None:
        if variant != "auto":
            raise ValueError(
                f"variant {variant!r} needs a Hopper GPU (compute capability 9.0), JAX sees none: "
                "use variant='auto', which is plain JAX elsewhere"
            )
        return None
    cuda = Device("cuda")
    first = select.select(launch.gate_up_problem(m, k, n, layout, cuda), device, variant)
    if first.kernel is None:
        return None
    down = None
    if k_out:
        second = select.select(launch.down_problem(m, n, k_out, layout, cuda), device)
        down = second.kernel
    return Description(
        m=m,
        k=k,
        n=n,
        k_out=k_out if down else 0,
        layout=layout,
        gate_up=first.kernel.name,
        down=down.name if down else "",
    )


@functools.cache
def hopper() -> DeviceInfo | None:
    """The first GPU that JAX sees in this process, if it is a Hopper."""
    try:
        first, *_ = jax.local_devices(backend="cuda")
    except RuntimeError:  # JAX has no such backend here
        return None
    if first.compute_capability != "9.0":
        return None
    return plan.device_info(first.local_hardware_id)


def _fused(made: Description, x: Array, gate: Array, up: Array, *down: Array) -> Array:
    """XLA's custom call, and a plain product where no kernel multiplies by w_down."""
    operands = [x, gate, up, *(down if made.down else ())]
    if made.layout == "k":  # XLA undoes a transpose with another: nothing moves
        operands = [x, *(weight.T for weight in operands[1:])]
    likes = jax.eval_shape(plain.forward, x, gate, up)
    results = [likes]
    if made.down:
        results = [jax.eval_shape(plain.forward, x, gate, up, *down), likes]
    call = jax.ffi.ffi_call(launch.TARGET, results, vmap_method="sequential")
    found, *_ = call(*operands, call=made.text())
    return plain.product(found, *down) if down and not made.down else found


def same_axes(*given: Array) -> list[Array]:
    """Inside shard_map, arrays that all vary over the mesh axes that any of them varies over.

    Their gradients are then summed over the axes that an array does not vary over by itself.
    """
    axes = [_axes(array) for array in given]
    every = frozenset().union(*axes)
    return [
        _varying(array, tuple(sorted(every - own))) if every - own else array
        for array, own in zip(given, axes, strict=True)
    ]


def _axes(array: Array) -> frozenset[str]:
    """The mesh axes that an array varies over."""
    kind = jax.typeof(array)
    if hasattr(kind, "manual_axis_type"):  # since JAX 0.11
        return frozenset(kind.manual_axis_type.varying)
    return frozenset(getattr(kind, "vma", ()))


def _varying(array: Array, axes: tuple[str, ...]) -> Array:
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)


def empty(shape: tuple[int, ...]) -> Array:
    """The result of no tokens."""
    return jnp.zeros(shape, jnp.bfloat16)
