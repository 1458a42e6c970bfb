"""JAX's swiglu and mlp: under `jax.jit`, on XLA's stream, inside its CUDA graphs.

    import cuswiglu.jax
    y = cuswiglu.jax.mlp(x, gate.T, up.T, down.T)  # of (N, K), (N, K) and (K_out, N) matrices

The kernels are reached through XLA's FFI, by a handler in Python: no PyTorch, no CuPy and no
compiler are needed. On a CPU, a TPU or another GPU the same functions are plain JAX, with the same
rounding points.
"""

from __future__ import annotations

import math
from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError(
        f"cuswiglu.jax needs JAX, which cannot be imported here ({error}): "
        "pip install 'cuswiglu[jax]'"
    ) from error

from .. import arrays, problem
from ..arrays import ArrayView
from ..common.device import CPU
from ..common.dtypes import DTYPES
from ..problem import WeightArrays, Weights, activations
from ..problem.activations import ClampedSwiGLU
from ..selection import select
from . import launch, operation
from .plain import Operation

__all__ = ["COMPILER_OPTIONS", "mlp", "swiglu"]

#: For `jax.jit(..., compiler_options=...)` of a program on several GPUs. XLA puts sequences of
#: kernels in CUDA graphs, by default of five and more; between two sums over GPUs lie fewer, and
#: then each call of each layer would go through the handler in Python.
COMPILER_OPTIONS = {"xla_gpu_graph_min_graph_size": 1}

jax.ffi.register_ffi_target(launch.TARGET, jax.ffi.pycapsule(launch.HANDLER), platform="CUDA")


def swiglu(
    x: Any,
    w_gate: Any,
    w_up: Any,
    *,
    b_gate: Any = None,
    b_up: Any = None,
    activation: str | ClampedSwiGLU = "silu",
    weights: str = "k",
    variant: str = "auto",
) -> Any:
    """Compute SiLU(x @ w_gate + b_gate) * (x @ w_up + b_up), or another activation, fused.

    Parameters
    ----------
    x : (..., K) array
        BF16 or FP16, and so all arrays of the call.
    w_gate, w_up : (K, N) array
    b_gate, b_up : (N,) array, optional
    activation : str or ClampedSwiGLU
        As in `cuswiglu.swiglu`.
    weights : str
        How they lie in memory, which JAX does not tell: "k", along K, if each is the transpose of a
        row-major (N, K) matrix, taken in the same jit (a checkpoint's ``weight.T``: it is never
        made); "n" if each is a row-major (K, N) array by itself (Flax). The other one of the two
        gives the same result, and costs a copy of the weights in each call.
    variant : str
        "auto", "cublas" (plain JAX), a family or the name of one of `cuswiglu.variants()`, which
        is looked for on the GPU and must be able to compute this.

    Returns
    -------
    (..., N) array
        Of x's dtype: products, sums and activation are FP32, rounded once.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, while JAX traces.

    Notes
    -----
    `jax.vmap` over x becomes more rows; over weights, plain JAX. Gradients are plain JAX, with the
    activation computed again. GSPMD does not cut a custom call: use `jax.shard_map`.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import cuswiglu.jax
    >>> @jax.jit
    ... def hidden(x, gate_proj, up_proj):  # checkpoint matrices, (N, K)
    ...     return cuswiglu.jax.swiglu(x, gate_proj.T, up_proj.T)
    >>> x, weight = jnp.ones((16, 64), jnp.bfloat16), jnp.ones((192, 64), jnp.bfloat16)
    >>> hidden(x, weight, weight).shape
    (16, 192)

    Flax keeps its kernels as (K, N), row-major:

    >>> cuswiglu.jax.swiglu(x, weight.T, weight.T, weights="n").shape
    (16, 192)
    """
    biases = {"b_gate": b_gate, "b_up": b_up}
    return _call(x, {"w_gate": w_gate, "w_up": w_up}, biases, activation, weights, variant)


def mlp(
    x: Any,
    w_gate: Any,
    w_up: Any,
    w_down: Any,
    *,
    b_gate: Any = None,
    b_up: Any = None,
    b_down: Any = None,
    activation: str | ClampedSwiGLU = "silu",
    weights: str = "k",
    variant: str = "auto",
) -> Any:
    """Compute the gated MLP: swiglu(x, w_gate, w_up) @ w_down + b_down.

    Parameters
    ----------
    x : (..., K) array
    w_gate, w_up : (K, N) array
    w_down : (N, K_out) array
        As in `swiglu`; `weights` tells how all three lie.
    b_gate, b_up : (N,) array, optional
    b_down : (K_out,) array, optional
    activation : str or ClampedSwiGLU
    weights, variant : str
        As in `swiglu`; `variant` chooses the kernel of gate and up.

    Returns
    -------
    (..., K_out) array
        Of x's dtype. The (M, N) intermediate is rounded to it once; both products accumulate in
        FP32.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, while JAX traces.

    Examples
    --------
    A layer of a checkpoint, and its gradient:

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import cuswiglu.jax
    >>> def layer(x, gate_proj, up_proj, down_proj):
    ...     return cuswiglu.jax.mlp(x, gate_proj.T, up_proj.T, down_proj.T)
    >>> x, down_proj = jnp.ones((16, 64), jnp.bfloat16), jnp.ones((64, 192), jnp.bfloat16)
    >>> weights = jnp.ones((192, 64), jnp.bfloat16), jnp.ones((192, 64), jnp.bfloat16), down_proj
    >>> jax.jit(layer)(x, *weights).shape
    (16, 64)
    >>> jax.grad(lambda x: layer(x, *weights).sum())(x).shape
    (16, 64)

    Tensor parallelism, with one sum over the GPUs:

    >>> from jax.sharding import PartitionSpec as P
    >>> def part(x, gate_proj, up_proj, down_proj):
    ...     return jax.lax.psum(layer(x, gate_proj, up_proj, down_proj), "tp")
    >>> mesh = jax.sharding.Mesh(jax.devices(), ("tp",))
    >>> columns, rows = P("tp", None), P(None, "tp")
    >>> specs = P(), columns, columns, rows
    >>> parallel = jax.jit(
    ...     jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=P()),
    ...     compiler_options=cuswiglu.jax.COMPILER_OPTIONS,
    ... )
    >>> parallel(x, *weights).shape
    (16, 64)

    Each GPU rounds its part of the sum before the sum. A b_down is to be added once, behind
    the sum, and not by each.
    """
    given = {"w_gate": w_gate, "w_up": w_up, "w_down": w_down}
    biases = {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
    return _call(x, given, biases, activation, weights, variant)


def _call(
    x: Any,
    given: dict[str, Any],
    biases: dict[str, Any],
    activation: str | ClampedSwiGLU,
    layout: str,
    variant: str,
) -> Any:
    """Check the call as `cuswiglu.swiglu` does, and make it of rows of x."""
    if layout not in ("k", "n"):
        raise ValueError(f"weights must be 'k' or 'n' (how they lie in memory), got {layout!r}")
    select.check_name(variant)
    if variant == select.REFERENCE:
        raise ValueError("variant 'numpy' is not for JAX arrays: use 'auto', or 'cublas'")
    meant = activations.find(activation)
    given |= {name: bias for name, bias in biases.items() if bias is not None}
    view, views = _view("x", x), {name: _view(name, array) for name, array in given.items()}
    gate_up = views["w_gate"], views["w_up"]
    operands = Weights(gate_up, *(views.get(name) for name in WeightArrays._fields[2:]))
    problem.check_operands(operands)
    problem.check_x(view, gate_up[0])
    shape = (*view.shape[:-1], operands.columns)
    if view.empty:
        return jax.numpy.zeros(shape, view.dtype)
    rows = jax.numpy.reshape(x, (math.prod(view.shape[:-1]), view.shape[-1]))
    arguments = operation.same_axes(rows, *map(jax.numpy.asarray, given.values()))
    function = operation.transformable(Operation(meant, tuple(given)), layout, variant)
    return function(*arguments).reshape(shape)


def _view(name: str, array: Any) -> ArrayView:
    """View the shape of an array, for checks."""
    if not (hasattr(array, "shape") and hasattr(array, "dtype")):
        raise TypeError(
            f"{name} must be a JAX array, got {type(array).__name__}: make one with jnp.asarray"
        )
    if str(array.dtype) not in DTYPES:
        raise TypeError(
            f"{name} must have dtype bfloat16 or float16, got {array.dtype}: convert it with "
            f"{name}.astype(jnp.bfloat16)"
        )
    return arrays.new_view(name, tuple(array.shape), CPU, str(array.dtype))
