"""The two verbs: swiglu and mlp."""

from __future__ import annotations

from typing import Any

from . import arrays, calls, interop, plan, problem, select
from .arrays import ArrayView
from .cache import Cache
from .calls import ReadyCall
from .plan import Sm90Plan

CACHED_CALLS = 256


def swiglu(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    *,
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
    like: str | None = None,
) -> Any:
    """SiLU(x @ w_gate) * (x @ w_up), fused.

    Parameters
    ----------
    x : (..., K) array
        BF16, contiguous along K; the leading dimensions (tokens, M in all) are walked by one
        stride. NumPy (``ml_dtypes.bfloat16``), CuPy, or another library's, as in
        `cuswiglu.asarray`.
    w_gate, w_up : (K, N) array
        BF16, contiguous along K (a checkpoint's ``weight.T``, a view) or along N. Or `w_gate` is
        `PackedWeights`, which hold both, and `w_up` is left out.
    out : (..., N) array, optional
        Where to write; must not overlap an input.
    variant : str
        "auto", "cublas" (the portable path), a family ("dual", "sync"; "interleave" for packed
        weights), or one instance of `cuswiglu.variants()`.
    stream : cupy.cuda.Stream, int, or object with ``__cuda_stream__``, optional
        Where work goes; the current CuPy stream of x's device by default. It waits for the work of
        other libraries on their arrays.
    like : "input", optional
        Give a new result as an array of x's library, whose current stream waits for it. By default
        it is CuPy's, or NumPy's on the CPU.

    Returns
    -------
    (..., N) array
        `out`, or a new one. BF16: products and activation are FP32, rounded once.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.

    Notes
    -----
    Nothing synchronises. The same inputs, shapes and variant give the same bits.
    """
    return _call(variant, stream, like, out, x, w_gate, w_up)


def mlp(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    w_down: Any = None,
    *,
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
    like: str | None = None,
) -> Any:
    """The gated MLP: swiglu(x, w_gate, w_up) @ w_down.

    Parameters
    ----------
    x : (..., K) array
    w_gate, w_up : (K, N) array
    w_down : (N, K_out) array
        As in `swiglu`: each contiguous along either dimension.
    out : (..., K_out) array, optional
    variant, stream, like
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
    return _call(variant, stream, like, out, x, w_gate, w_up, w_down)


_ready: Cache[calls.Key, ReadyCall] = Cache(CACHED_CALLS)


def _call(
    variant: str,
    stream: Any,
    like: str | None,
    out: Any,
    x: Any,
    w_gate: Any,
    w_up: Any,
    *w_down: Any,
) -> Any:
    """swiglu, or mlp where there is w_down: by the call made ready for such arrays, or anew."""
    given = (x, w_gate, w_up, *w_down, out)
    key, from_dlpack = calls.key(variant, *given), None
    if key is None or like is not None:
        from_dlpack = interop.way_back(like, x)
        names = ("x", "w_gate", "w_up", *(["w_down"] if w_down else []), "out")
        given = tuple(
            arrays.taken(name, array, stream) for name, array in zip(names, given, strict=True)
        )
        key = calls.key(variant, *given)
    taken, gate, up, *down, target = given
    ready = None if key is None else _ready.get(key)
    if ready is not None:
        weights, last = calls.addresses(gate, up, *down), down[0] if down else None
        result = ready.call(ready, taken, weights, last, target, stream)
    else:
        view = arrays.view("x", taken)
        gate_up = problem.gate_up(gate, up, stream)
        projection = arrays.view("w_down", *down) if down else None
        problem.check_gate_up(gate_up, projection)
        select.check_name(variant)
        result = first_call(view, gate_up, projection, target, variant, stream, key, _ready)
    if out is not None:
        return out
    return result if from_dlpack is None else interop.handed_over(result, from_dlpack, stream)


def first_call(
    x: ArrayView,
    gate_up: tuple[ArrayView, ...],
    down: ArrayView | None,
    out: Any,
    variant: str,
    stream: Any,
    key: calls.Key | None,
    ready: Cache[calls.Key, ReadyCall],
) -> Any:
    """swiglu, or mlp where there is `down`, of weights that are checked already.

    `variant` is a known name, or `select.BATCH`. What later calls with this key need is kept in
    `ready`, if a kernel of ours computes gate and up.
    """
    problem.check_x(x, gate_up[0])
    rows = arrays.matrix(x)
    n = problem.intermediate(gate_up)
    shape = (*x.shape[:-1], n if down is None else down.shape[1])
    result = arrays.to_be("out", shape, x.device)
    hidden = arrays.to_be("hidden", (rows.shape[0], n), x.device)
    if out is not None:
        result = arrays.view("out", out, stream)
        problem.check_out(result, shape, [x, *gate_up, *([] if down is None else [down])])
    target = arrays.matrix(result, writing=True)
    with arrays.on_stream(x.device, stream) as handle:
        if result.empty:
            return arrays.empty(shape, x.device) if out is None else out
        between = target if down is None else hidden
        first = plan.plan_for(problem.describe(rows, gate_up, between), variant)
        second = None
        if down is not None:
            of_both = select.PORTABLE, select.REFERENCE, select.BATCH
            name = variant if variant in of_both else "auto"
            second = plan.plan_for(problem.describe(hidden, (down,), target), name)
        if isinstance(first, Sm90Plan):
            made = ReadyCall(x, gate_up, down, result, first, second)
            if key is not None:
                ready.put(key, made)
            weights = calls.addresses_of(gate_up, down)
            return made.call(made, x.array, weights, down and down.array, result.array, stream)
        if out is None:
            result = arrays.view("out", arrays.empty(shape, x.device))
            target = arrays.matrix(result, writing=True)
        if down is None or second is None:
            first(rows, gate_up, target, handle)
        else:
            hidden = arrays.view("hidden", arrays.empty(hidden.shape, x.device))
            first(rows, gate_up, hidden, handle)
            second(hidden, (down,), target, handle)
    return result.array
