"""The way in: one call of swiglu or mlp, from arguments to a launch."""

from __future__ import annotations

from typing import Any

from .. import arrays, problem
from ..arrays import ArrayView, convert
from ..common.cache import Cache
from ..problem import activations, biases
from ..problem.activations import Activation, ClampedSwiGLU
from ..problem.biases import Biases
from ..runtime import plan, prepared
from ..runtime.driver import driver
from ..runtime.plan import Sm90Plan
from ..runtime.prepared import PreparedCall
from ..selection import select

CACHED_CALLS = 256
_ready: Cache[prepared.Key, PreparedCall] = Cache(CACHED_CALLS)
_NAMES = ("out", "x", "w_gate", "w_up", "w_down")
_BIASES = ("b_gate", "b_up", "b_down")


def call(
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
    key, from_dlpack = prepared.key(variant, activation, *given), None
    if key is None or like is not None:
        from_dlpack = convert.exporter_of(like, x)
        names = (*_NAMES[: 4 + len(w_down)], *_BIASES[: len(added)])
        given = tuple(
            arrays.import_array(name, array, stream)
            for name, array in zip(names, given, strict=True)
        )
        key = prepared.key(variant, activation, *given)
    target, taken, gate, up, *down = given
    if added:
        down, added = down[: len(w_down)], tuple(down[len(w_down) :])
    ready = None if key is None else _ready.get(key)
    if ready is not None:
        weights = prepared.addresses(gate, up, down[0] if down else None, added)
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
    return result if from_dlpack is None else convert.export(result, from_dlpack, stream)


def first_call(
    x: ArrayView,
    gate_up: tuple[ArrayView, ...],
    down: ArrayView | None,
    biases: Biases,
    activation: Activation,
    out: Any,
    variant: str,
    stream: Any,
    key: prepared.Key | None,
    ready: Cache[prepared.Key, PreparedCall],
) -> Any:
    """swiglu, or mlp where there is `down`, of weights and biases that are checked already.

    `variant` is a known name, or `select.BATCH`. What later calls with this key need is kept in
    `ready`, if a kernel of ours computes gate and up.
    """
    problem.check_x(x, gate_up[0])
    rows = arrays.matrix(x)
    n = problem.intermediate(gate_up)
    shape = (*x.shape[:-1], n if down is None else down.shape[1])
    result = arrays.new_view("out", shape, x.device, x.dtype)
    hidden = arrays.new_view("hidden", (rows.shape[0], n), x.device, x.dtype)
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
            made = PreparedCall(x, gate_up, down, biases, result, first, second)
            if key is not None:
                ready.put(key, made)
            addresses = prepared.addresses_of(gate_up, down, biases)
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
    """The arrays of w_down and b_down, as `PreparedCall.call` takes them."""
    return tuple(view.array for view in (down, biases.down) if view is not None)
