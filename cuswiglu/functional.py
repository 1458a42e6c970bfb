"""The two verbs: swiglu and mlp."""

from __future__ import annotations

from typing import Any

from . import arrays, plan, problem, select
from .arrays import ArrayView
from .backends import cublas, reference


def swiglu(
    x: Any,
    w_gate: Any,
    w_up: Any,
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
        BF16, contiguous along K (a checkpoint's ``weight.T``, a view) or along N.
    out : (..., N) array, optional
        Where to write; must not overlap an input.
    variant : str
        "auto", "cublas" (the portable path), a family ("dual"), or one instance of
        `cuswiglu.variants()`.
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
    x_view, gate, up = problem.view_all(stream, x=x, w_gate=w_gate, w_up=w_up)
    problem.check_weights(gate, up)
    return _swiglu(x_view, gate, up, out, variant, stream)


def _swiglu(
    x: ArrayView, gate: ArrayView, up: ArrayView, out: Any, variant: str, stream: Any
) -> Any:
    shape, result = _prepare(x, gate, [gate, up], gate.shape[1], out, variant, stream)
    with arrays.on_stream(x.device, stream) as pointer:
        if result is None:
            result = arrays.view("out", arrays.empty(shape, x.device))
        if not result.empty:
            run_swiglu(arrays.matrix(x), gate, up, _out_matrix(result), variant, pointer)
    return result.array if out is None else out


def mlp(
    x: Any,
    w_gate: Any,
    w_up: Any,
    w_down: Any,
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
    views = problem.view_all(stream, x=x, w_gate=w_gate, w_up=w_up, w_down=w_down)
    problem.check_weights(*views[1:])
    return run_mlp(views[0], (views[1], views[2], views[3]), out, variant, stream)


def run_mlp(
    x: ArrayView,
    weights: tuple[ArrayView, ArrayView, ArrayView],
    out: Any,
    variant: str,
    stream: Any,
) -> Any:
    """`mlp` of weights that are checked already."""
    gate, up, down = weights
    shape, result = _prepare(x, gate, weights, down.shape[1], out, variant, stream)
    with arrays.on_stream(x.device, stream) as pointer:
        if result is None:
            result = arrays.view("out", arrays.empty(shape, x.device))
        if not result.empty:
            rows = arrays.matrix(x)
            out_rows = _out_matrix(result)
            hidden = arrays.view("hidden", arrays.empty((rows.shape[0], gate.shape[1]), x.device))
            run_swiglu(rows, gate, up, hidden, variant, pointer)
            product = reference.matmul if x.device.kind == "cpu" else cublas.matmul
            product(hidden.array, down.array, out_rows.array)
    return result.array if out is None else out


def _prepare(
    x: ArrayView,
    gate: ArrayView,
    weights: Any,
    columns: int,
    out: Any,
    variant: str,
    stream: Any,
) -> tuple[tuple[int, ...], ArrayView | None]:
    """All checks that need x and out: the result's shape, and out's view if it was given."""
    select.check_name(variant)
    problem.check_x(x, gate)
    arrays.matrix(x)
    shape = (*x.shape[:-1], columns)
    if out is None:
        return shape, None
    view = arrays.view("out", out, stream)
    problem.check_out(view, shape, [x, *weights])
    _out_matrix(view)
    return shape, view


def _out_matrix(out: ArrayView) -> ArrayView:
    return arrays.matrix(out, writing=True)


def run_swiglu(
    x: ArrayView, gate: ArrayView, up: ArrayView, out: ArrayView, variant: str, stream: int
) -> None:
    """Plan and launch checked matrices; the device and the stream are current."""
    planned = plan.plan_for(problem.swiglu_problem(x, gate, up, out), variant)
    planned(x, gate, up, out, stream)
