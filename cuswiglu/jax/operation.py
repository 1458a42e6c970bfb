"""The operation that JAX transforms: kernels where they apply, plain JAX elsewhere.

custom_vjp (gradients) around custom_vmap (batches become rows) around the choice, made while JAX
traces, between XLA's custom call and plain JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ..common.device import Device, DeviceInfo
from ..runtime import plan
from ..selection import select
from . import launch, plain
from .launch import Description
from .plain import Asked

Array = Any


@functools.cache
def operation(asked: Asked, layout: str, variant: str) -> Callable[..., Array]:
    """Swiglu or mlp, of x (M, K) and the arguments that are asked for.

    Parameters
    ----------
    asked : Asked
    layout : str
        "k" if the weights are transposed views of matrices that lie along K and N, "n" otherwise.
    variant : str
        As in `cuswiglu.swiglu`.
    """
    forward: Any = jax.custom_batching.custom_vmap(
        functools.partial(_forward, asked, layout, variant)
    )

    def batched(size: int, in_batched: Any, x: Array, *others: Array) -> tuple[Array, bool]:
        if any(in_batched[1:]):
            axes = [0 if batched else None for batched in in_batched]
            return jax.vmap(functools.partial(plain.forward, asked), axes)(x, *others), True
        m = x.shape[1]
        rows = forward(x.reshape(size * m, x.shape[2]), *others)
        return rows.reshape(size, m, rows.shape[1]), True

    def cuswiglu(*arguments: Array) -> Array:
        return forward(*arguments)

    forward.def_vmap(batched)
    differentiable = jax.custom_vjp(cuswiglu)
    differentiable.defvjp(
        lambda *arguments: (forward(*arguments), arguments),
        functools.partial(plain.gradients, asked),
    )
    jitted: Callable[..., Array] = jax.jit(differentiable)  # outside of a jit, traced once a kind
    return jitted


def _forward(asked: Asked, layout: str, variant: str, x: Array, *others: Array) -> Array:
    given = asked.named(others)
    sizes = [*x.shape, given["w_gate"].shape[1]]
    if "w_down" in given:
        sizes.append(given["w_down"].shape[1])
    made = choose(asked, layout, variant, hopper(), x.dtype.name, *sizes)
    plainly = functools.partial(plain.forward, asked)
    if made is None:
        return plainly(x, *others)
    fused = functools.partial(_fused, asked, made)
    return jax.lax.platform_dependent(x, *others, cuda=fused, default=plainly)


def choose(
    asked: Asked,
    layout: str,
    variant: str,
    device: DeviceInfo | None,
    dtype: str,
    m: int,
    k: int,
    n: int,
    k_out: int = 0,
) -> Description | None:
    """The kernels to launch; None where plain JAX computes it all.

    Parameters
    ----------
    asked : Asked
    layout, variant : str
    device : DeviceInfo or None
        A Hopper GPU, if there is one.
    dtype : str
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
    made = Description(
        m=m,
        k=k,
        n=n,
        k_out=k_out,
        layout=layout,
        gate_up="",
        down="",
        activation=asked.activation.name,
        **asked.activation.parameters,
        biases=tuple(name for name in asked.names if name.startswith("b_")),
        dtype=dtype,
    )
    cuda = Device("cuda")
    first = select.select(made.gate_up_problem(cuda), device, variant)
    if first.kernel is None:
        return None
    down = None
    if k_out:
        down = select.select(made.down_problem(cuda), device).kernel
    made = replace(made, gate_up=first.kernel.name)
    if down is not None:
        return replace(made, down=down.name)
    biases = tuple(name for name in made.biases if name != "b_down")
    return replace(made, k_out=0, biases=biases)


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


def _fused(asked: Asked, made: Description, x: Array, *others: Array) -> Array:
    """XLA's custom call, and a plain product where no kernel multiplies by w_down."""
    given = asked.named(others)
    handed = [given[name] for name in made.arguments]
    if made.layout == "k":  # XLA undoes a transpose with another: nothing moves
        handed = [array.T for array in handed]
    first = replace(asked, names=tuple(name for name in asked.names if name[2:] != "down"))
    hidden = _result(first, x, *(given[name] for name in first.names))
    results = [_result(asked, x, *others), hidden] if made.down else [hidden]
    call = jax.ffi.ffi_call(launch.TARGET, results, vmap_method="sequential")
    found, *_ = call(x, *handed, call=made.text())
    return plain.down(found, given) if "w_down" in given and not made.down else found


def _result(asked: Asked, *arguments: Array) -> Array:
    """Its shape and kind."""
    return jax.eval_shape(functools.partial(plain.forward, asked), *arguments)


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


def empty(shape: tuple[int, ...], dtype: str) -> Array:
    """The result of no tokens."""
    return jnp.zeros(shape, dtype)
