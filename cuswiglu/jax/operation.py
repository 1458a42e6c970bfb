"""The function that JAX transforms: kernels where they can be used, plain JAX elsewhere.

custom_vjp (gradients) around custom_vmap (batches become rows) around the choice, made while JAX
traces, between XLA's custom call and plain JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from ..common.device import Device, DeviceInfo
from ..runtime import plan
from ..selection import select
from . import launch, plain
from .launch import FusedCall
from .plain import Operation

Array = Any


@functools.cache
def transformable(operation: Operation, layout: str, variant: str) -> Callable[..., Array]:
    """Make the function of x (M, K) and the operation's arguments, for JAX to transform.

    Parameters
    ----------
    operation : Operation
    layout : str
        "k" if the weights are transposed views of matrices that lie along K and N, "n" otherwise.
    variant : str
        As in `cuswiglu.swiglu`.
    """
    forward: Any = jax.custom_batching.custom_vmap(
        functools.partial(_forward, operation, layout, variant)
    )

    def batched(size: int, in_batched: Any, x: Array, *others: Array) -> tuple[Array, bool]:
        if any(in_batched[1:]):
            axes = [0 if batched else None for batched in in_batched]
            return jax.vmap(functools.partial(plain.forward, operation), axes)(x, *others), True
        m = x.shape[1]
        rows = forward(x.reshape(size * m, x.shape[2]), *others)
        return rows.reshape(size, m, rows.shape[1]), True

    def cuswiglu(*arguments: Array) -> Array:
        return forward(*arguments)

    forward.def_vmap(batched)
    differentiable = jax.custom_vjp(cuswiglu)
    differentiable.defvjp(
        # Not `forward`, which has no derivative: second derivatives need this one's.
        lambda *arguments: (differentiable(*arguments), arguments),
        functools.partial(plain.gradients, operation),
    )
    jitted: Callable[..., Array] = jax.jit(differentiable)  # outside of a jit, traced once a kind
    return jitted


def _forward(operation: Operation, layout: str, variant: str, x: Array, *others: Array) -> Array:
    given = operation.named(others)
    sizes = [*x.shape, given["w_gate"].shape[1]]
    if "w_down" in given:
        sizes.append(given["w_down"].shape[1])
    made = choose(operation, layout, variant, hopper(), x.dtype.name, *sizes)
    plainly = functools.partial(plain.forward, operation)
    if made is None:
        return plainly(x, *others)
    fused = functools.partial(_fused, operation, made)
    return jax.lax.platform_dependent(x, *others, cuda=fused, default=plainly)


def choose(
    operation: Operation,
    layout: str,
    variant: str,
    device: DeviceInfo | None,
    dtype: str,
    m: int,
    k: int,
    n: int,
    k_out: int = 0,
) -> FusedCall | None:
    """Choose the kernels to launch; None where plain JAX computes it all.

    Parameters
    ----------
    operation : Operation
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
    made = FusedCall(
        m=m,
        k=k,
        n=n,
        k_out=k_out,
        layout=layout,
        gate_up="",
        down="",
        activation=operation.activation.name,
        **operation.activation.parameters,
        biases=tuple(name for name in operation.names if name.startswith("b_")),
        dtype=dtype,
    )
    gate_up, *down = made.problems(Device("cuda"))
    first = select.select(gate_up, device, variant).kernel
    if first is None:
        return None
    made = replace(made, gate_up=first.name)
    for problem in down:
        second = select.select(problem, device).kernel
        if second is not None:
            return replace(made, down=second.name)
    biases = tuple(name for name in made.biases if name != "b_down")
    return replace(made, k_out=0, biases=biases)


@functools.cache
def hopper() -> DeviceInfo | None:
    """Find the first GPU that JAX sees in this process, if it is a Hopper."""
    try:
        first, *_ = jax.local_devices(backend="cuda")
    except RuntimeError:  # JAX has no such backend here
        return None
    if first.compute_capability != "9.0":
        return None
    return plan.device_info(first.local_hardware_id)


def _fused(operation: Operation, made: FusedCall, x: Array, *others: Array) -> Array:
    """Make XLA's custom call, and a plain product where no kernel multiplies by w_down."""
    given = operation.named(others)
    handed = [given[name] for name in made.arguments]
    if made.layout == "k":  # XLA undoes a transpose with another: nothing moves
        handed = [array.T for array in handed]
    first = replace(operation, names=tuple(name for name in operation.names if name[2:] != "down"))
    hidden = _result(first, x, *(given[name] for name in first.names))
    results = [_result(operation, x, *others), hidden] if made.down else [hidden]
    call = jax.ffi.ffi_call(launch.TARGET, results, vmap_method="sequential")
    found, *_ = call(x, *handed, call=made.text())
    return plain.down(found, given) if "w_down" in given and not made.down else found


def _result(operation: Operation, *arguments: Array) -> Array:
    """Shape and dtype of an operation's result."""
    return jax.eval_shape(functools.partial(plain.forward, operation), *arguments)


def same_axes(*given: Array) -> list[Array]:
    """Have all arrays vary over the mesh axes that any of them varies over, inside shard_map.

    Their gradients are then summed over the axes that an array does not vary over by itself.
    """
    axes = [_axes(array) for array in given]
    every = frozenset().union(*axes)
    return [
        _varying(array, tuple(sorted(every - own))) if every - own else array
        for array, own in zip(given, axes, strict=True)
    ]


def _axes(array: Array) -> frozenset[str]:
    """Mesh axes that an array varies over."""
    kind = jax.typeof(array)
    if hasattr(kind, "manual_axis_type"):  # since JAX 0.11
        return frozenset(kind.manual_axis_type.varying)
    return frozenset(getattr(kind, "vma", ()))


def _varying(array: Array, axes: tuple[str, ...]) -> Array:
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)
