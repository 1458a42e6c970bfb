"""The two verbs: swiglu and mlp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import arrays, plan, problem, select
from .arrays import ArrayView


def swiglu(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    *,
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
) -> Any:
    """SiLU(x @ w_gate) * (x @ w_up), fused.

    Parameters
    ----------
    x : (..., K) array
        BF16, contiguous along K; the leading dimensions (tokens, M in all) are walked by one
        stride. NumPy (``ml_dtypes.bfloat16``) or CuPy.
    w_gate, w_up : (K, N) array
        BF16, contiguous along K (a checkpoint's ``weight.T``, a view) or along N. Or `w_gate` is
        `PackedWeights`, which hold both, and `w_up` is left out.
    out : (..., N) array, optional
        Where to write; must not overlap an input.
    variant : str
        "auto", "cublas" (the portable path), a family ("dual", "sync"; "interleave" for packed
        weights), or one instance of `cuswiglu.variants()`.
    stream : cupy.cuda.Stream, int, or object with ``__cuda_stream__``, optional
        Where work goes; the current CuPy stream of x's device by default.

    Returns
    -------
    (..., N) array
        `out`, or a new one of x's kind. BF16: products and activation are FP32, rounded once.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.

    Notes
    -----
    Nothing synchronises. The same inputs, shapes and variant give the same bits.
    """
    x_view = arrays.view("x", x, stream)
    weights = problem.gate_up(w_gate, w_up, stream)
    problem.check_gate_up(weights)
    shape, result = _prepare(
        x_view, weights, weights, problem.intermediate(weights), out, variant, stream
    )
    with arrays.on_stream(x_view.device, stream) as pointer:
        if result is None:
            result = arrays.view("out", arrays.empty(shape, x_view.device))
        if not result.empty:
            run(arrays.matrix(x_view), weights, _out_matrix(result), variant, pointer)
    return result.array if out is None else out


def mlp(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    w_down: Any = None,
    *,
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
) -> Any:
    """The gated MLP: swiglu(x, w_gate, w_up) @ w_down.

    Parameters
    ----------
    x : (..., K) array
    w_gate, w_up : (K, N) array
    w_down : (N, K_out) array
        As in `swiglu`: each contiguous along either dimension.
    out : (..., K_out) array, optional
    variant, stream
        As in `swiglu`; `variant` chooses the kernel of gate and up.

    Returns
    -------
    (..., K_out) array
        BF16. The (M, N) intermediate is rounded to BF16 once; both products accumulate in FP32.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.
    """
    x_view = arrays.view("x", x, stream)
    weights = problem.gate_up(w_gate, w_up, stream)
    down = arrays.view("w_down", w_down, stream)
    problem.check_gate_up(weights, down)
    return run_mlp(x_view, weights, down, out, variant, stream)


def run_mlp(
    x: ArrayView,
    weights: tuple[ArrayView, ...],
    down: ArrayView,
    out: Any,
    variant: str,
    stream: Any,
) -> Any:
    """`mlp` of weights that are checked already."""
    shape, result = _prepare(x, weights, [*weights, down], down.shape[1], out, variant, stream)
    with arrays.on_stream(x.device, stream) as pointer:
        if result is None:
            result = arrays.view("out", arrays.empty(shape, x.device))
        if not result.empty:
            rows = arrays.matrix(x)
            hidden_shape = (rows.shape[0], problem.intermediate(weights))
            hidden = arrays.view("hidden", arrays.empty(hidden_shape, x.device))
            run(rows, weights, hidden, variant, pointer)
            down_variant = variant if variant in (select.PORTABLE, select.REFERENCE) else "auto"
            run(hidden, (down,), _out_matrix(result), down_variant, pointer)
    return result.array if out is None else out


def _prepare(
    x: ArrayView,
    gate_up: Sequence[ArrayView],
    inputs: Sequence[ArrayView],
    columns: int,
    out: Any,
    variant: str,
    stream: Any,
) -> tuple[tuple[int, ...], ArrayView | None]:
    """All checks that need x and out: the result's shape, and out's view if it was given."""
    select.check_name(variant)
    problem.check_x(x, gate_up[0])
    arrays.matrix(x)
    shape = (*x.shape[:-1], columns)
    if out is None:
        return shape, None
    view = arrays.view("out", out, stream)
    problem.check_out(view, shape, [x, *inputs])
    _out_matrix(view)
    return shape, view


def _out_matrix(out: ArrayView) -> ArrayView:
    return arrays.matrix(out, writing=True)


def run(
    x: ArrayView, weights: Sequence[ArrayView], out: ArrayView, variant: str, stream: int
) -> None:
    """Plan and launch checked matrices; the device and the stream are current."""
    planned = plan.plan_for(problem.describe(x, weights, out), variant)
    planned(x, weights, out, stream)
