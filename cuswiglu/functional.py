"""The two verbs: swiglu and mlp."""

from __future__ import annotations

from typing import Any

from . import activations, arrays, biases, calls, interop, plan, problem, select
from .activations import Activation, ClampedSwiGLU
from .arrays import ArrayView
from .biases import Biases
from .cache import Cache
from .calls import ReadyCall
from .driver import driver
from .plan import Sm90Plan

CACHED_CALLS = 256


def swiglu(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    *,
    b_gate: Any = None,
    b_up: Any = None,
    activation: str | ClampedSwiGLU = "silu",
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
    like: str | None = None,
) -> Any:
    """SiLU(x @ w_gate + b_gate) * (x @ w_up + b_up), or with another activation, fused.

    Parameters
    ----------
    x : (..., K) array
        BF16 or FP16, and so all arrays of the call; contiguous along K; the leading dimensions
        (tokens, M in all) are walked by one stride. NumPy (``ml_dtypes.bfloat16`` and
        ``numpy.float16``), CuPy, or another library's, as in `cuswiglu.asarray`.
    w_gate, w_up : (K, N) array
        Contiguous along K (a checkpoint's ``weight.T``, a view) or along N. Or `w_gate` is
        `PackedWeights`, which hold both, and `w_up` is left out.
    b_gate, b_up : (N,) array, optional
        Contiguous; beside packed weights too, one number for each column of a weight.
    activation : str or ClampedSwiGLU
        Of gate: "silu", "gelu" (by the error function), "gelu_tanh" (its approximation) or "relu",
        times up. Or `ClampedSwiGLU`, of both.
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
        `out`, or a new one, of x's dtype: products, sums and activation are FP32, rounded once.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.

    Notes
    -----
    Nothing synchronises. The same inputs, shapes and variant give the same bits.
    """
    added = () if b_gate is b_up is None else (b_gate, b_up)
    return _call(variant, activation, stream, like, added, out, x, w_gate, w_up)


def mlp(
    x: Any,
    w_gate: Any,
    w_up: Any = None,
    w_down: Any = None,
    *,
    b_gate: Any = None,
    b_up: Any = None,
    b_down: Any = None,
    activation: str | ClampedSwiGLU = "silu",
    out: Any = None,
    variant: str = "auto",
    stream: Any = None,
    like: str | None = None,
) -> Any:
    """The gated MLP: swiglu(x, w_gate, w_up) @ w_down + b_down.

    Parameters
    ----------
    x : (..., K) array
    w_gate, w_up : (K, N) array
    w_down : (N, K_out) array
        As in `swiglu`: each contiguous along either dimension.
    b_gate, b_up : (N,) array, optional
    b_down : (K_out,) array, optional
        As in `swiglu`.
    out : (..., K_out) array, optional
    activation, variant, stream, like
        As in `swiglu`; `variant` chooses the kernel of gate and up.

    Returns
    -------
    (..., K_out) array
        Of x's dtype. The (M, N) intermediate is rounded to it once; both products accumulate in
        FP32.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, before anything is launched or written.
    """
    added = () if b_gate is b_up is b_down is None else (b_gate, b_up, b_down)
    return _call(variant, activation, stream, like, added, out, x, w_gate, w_up, w_down)


_ready: Cache[calls.Key, ReadyCall] = Cache(CACHED_CALLS)
_NAMES = ("out", "x", "w_gate", "w_up", "w_down")
_BIASES = ("b_gate", "b_up", "b_down")


def _call(
    variant: str,
    activation: str | ClampedSwiGLU,
    stream: Any,
    like: str | None,
    added: tuple[Any, ...],
    out: Any,
    x: Any,
    w_gate: Any,
    w_up: Any,
    *w_down: Any,
) -> Any:
    """swiglu, or mlp where there is w_down: by the call made ready for such arrays, or anew.

    `added` are the biases, those that are None too, or nothing where all are.
    """
    given = (out, x, w_gate, w_up, *w_down, *added)
    key, from_dlpack = calls.key(variant, activation, *given), None
    if key is None or like is not None:
        from_dlpack = interop.way_back(like, x)
        names = (*_NAMES[: 4 + len(w_down)], *_BIASES[: len(added)])
        given = tuple(
            arrays.taken(name, array, stream) for name, array in zip(names, given, strict=True)
        )
        key = calls.key(variant, activation, *given)
    target, taken, gate, up, *down = given
    if added:
        down, added = down[: len(w_down)], tuple(down[len(w_down) :])
    ready = None if key is None else _ready.get(key)
    if ready is not None:
        weights = calls.addresses(gate, up, down[0] if down else None, added)
        last = [*down, *added[2:]] if added else down
        result = ready.call(ready, taken, weights, last, target, stream)
    else:
        view = arrays.view("x", taken)
        gate_up = problem.gate_up(gate, up, stream)
        projection = arrays.view("w_down", *down) if down else None
        problem.check_gate_up(gate_up, projection)
        looked_at = biases.view(stream, *added)
        problem.check_biases(looked_at, gate_up, projection)
        select.check_name(variant)
        meant = activations.find(activation)
        result = first_call(
            view, gate_up, projection, looked_at, meant, target, variant, stream, key, _ready
        )
    if out is not None:
        return out
    return result if from_dlpack is None else interop.handed_over(result, from_dlpack, stream)


def first_call(
    x: ArrayView,
    gate_up: tuple[ArrayView, ...],
    down: ArrayView | None,
    biases: Biases,
    activation: Activation,
    out: Any,
    variant: str,
    stream: Any,
    key: calls.Key | None,
    ready: Cache[calls.Key, ReadyCall],
) -> Any:
    """swiglu, or mlp where there is `down`, of weights and biases that are checked already.

    `variant` is a known name, or `select.BATCH`. What later calls with this key need is kept in
    `ready`, if a kernel of ours computes gate and up.
    """
    problem.check_x(x, gate_up[0])
    rows = arrays.matrix(x)
    n = problem.intermediate(gate_up)
    shape = (*x.shape[:-1], n if down is None else down.shape[1])
    result = arrays.to_be("out", shape, x.device, x.dtype)
    hidden = arrays.to_be("hidden", (rows.shape[0], n), x.device, x.dtype)
    if out is not None:
        result = arrays.view("out", out, stream)
        weights = [*gate_up, *([] if down is None else [down])]
        problem.check_out(result, shape, [x, *weights, *biases.given])
    target = arrays.matrix(result, writing=True)
    if x.device.kind == "cuda":
        driver().check_process()  # CuPy would say it in CUDA's words
    with arrays.on_stream(x.device, stream) as handle:
        if result.empty:
            return arrays.empty(shape, x.device, x.dtype) if out is None else out
        between = target if down is None else hidden
        of_gate_up, of_down = biases.of_gate_up, biases.of_down
        described = problem.describe(
            rows, gate_up, between, activation=activation, biased=bool(of_gate_up)
        )
        first = plan.plan_for(described, variant)
        second = None
        if down is not None:
            of_both = select.PORTABLE, select.REFERENCE, select.BATCH
            name = variant if variant in of_both else "auto"
            described = problem.describe(hidden, (down,), target, biased=bool(of_down))
            second = plan.plan_for(described, name)
        if isinstance(first, Sm90Plan):
            made = ReadyCall(x, gate_up, down, biases, result, first, second)
            if key is not None:
                ready.put(key, made)
            addresses = calls.addresses_of(gate_up, down, biases)
            last = projection(down, biases)
            return made.call(made, x.array, addresses, last, result.array, stream)
        if out is None:
            result = arrays.view("out", arrays.empty(shape, x.device, x.dtype))
            target = arrays.matrix(result, writing=True)
        if down is None or second is None:
            first(rows, gate_up, target, handle, of_gate_up)
        else:
            hidden = arrays.view("hidden", arrays.empty(hidden.shape, x.device, x.dtype))
            first(rows, gate_up, hidden, handle, of_gate_up)
            second(hidden, (down,), target, handle, of_down)
    return result.array


def projection(down: ArrayView | None, biases: Biases) -> tuple[Any, ...]:
    """The arrays of w_down and b_down, as `ReadyCall.call` takes them."""
    return tuple(view.array for view in (down, biases.down) if view is not None)
