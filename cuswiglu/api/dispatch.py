"""Dispatch: the one road of a call of swiglu, mlp or GatedMLP, from arguments to a launch.

The arrays' signature finds the prepared call, which launches. Without one, arrays are imported,
viewed and checked, and become problems, then a chain of plans, then a prepared call, which is kept.
The result goes back as an array of x's library where that is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import arrays, problem
from ..arrays import ArrayView, convert
from ..common.cache import Cache
from ..problem import WeightArrays, Weights, activations
from ..problem.activations import Activation, ClampedSwiGLU
from ..runtime import plan
from ..runtime.chain import Chain, WeightAddresses, weight_addresses
from ..runtime.driver import driver
from ..runtime.prepared import PreparedCall
from ..runtime.signature import CallSignature, array_signature, call_signature
from ..selection import select

Calls = Cache[CallSignature, PreparedCall]

CACHED_CALLS = 256
#: Under these names the down projection goes the way of gate and up; under others its own.
_OF_BOTH = select.PORTABLE, select.REFERENCE, select.BATCH
_calls: Calls = Cache(CACHED_CALLS)


class PassedWeights(NamedTuple):
    """Weights that are passed with each call, imported, and what to compute with them."""

    operands: WeightArrays
    activation: str | ClampedSwiGLU
    variant: str
    calls: Calls = _calls

    @property
    def addresses(self) -> WeightAddresses:
        """Addresses of the weights, which are CuPy arrays."""
        return _addresses(self.operands)

    def signature(self, x: Any, out: Any) -> CallSignature | None:
        """Signature of the call with x and `out`."""
        return call_signature(self.variant, self.activation, (x, out, *self.operands))

    def checked(self, stream: Any) -> CheckedWeights:
        """View and check the weights."""
        select.check_name(self.variant)
        return CheckedWeights(self.operands, self.activation, self.variant, _calls, stream)


class CheckedWeights:
    """Weights that are viewed and checked, and what to compute with them.

    Parameters
    ----------
    given : WeightArrays
    activation : str or ClampedSwiGLU
    variant : str
        A known name, or `select.BATCH`.
    calls : Cache
        Keeps the calls that are prepared.
    stream : optional
        Where the weights will be used.
    constant : bool
        Whether nobody writes them after their first use, so that kernels may load them early.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """

    def __init__(
        self,
        given: WeightArrays,
        activation: str | ClampedSwiGLU,
        variant: str,
        calls: Calls,
        stream: Any = None,
        *,
        constant: bool = False,
    ) -> None:
        self.operands = views = Weights.view(given, stream)
        problem.check_operands(views)
        self.activation: Activation = activations.find(activation)
        self.variant, self.calls, self.constant = variant, calls, constant
        others = views.down, views.b_gate, views.b_up, views.b_down
        self.addresses = weight_addresses(
            views.gate_up[0].pointer,
            views.gate_up[-1].pointer,
            *(0 if view is None else view.pointer for view in others),
        )

    def signature(self, x: Any, out: Any) -> CallSignature | None:
        """Signature of the call with x and `out`: all else is the same in each call."""
        of_x = array_signature(x)
        if out is None or of_x is None:
            return of_x
        of_out = array_signature(out)
        return of_out and (of_x, of_out)

    def checked(self, stream: Any) -> CheckedWeights:
        """Return the weights themselves: they are checked already."""
        return self


def call(
    x: Any,
    given: tuple[Any, ...],
    out: Any,
    activation: str | ClampedSwiGLU,
    variant: str,
    stream: Any,
    like: str | None,
) -> Any:
    """Compute swiglu, or mlp where there is w_down; `given` is in the order of `WeightArrays`."""
    signature = call_signature(variant, activation, (x, out, *given))
    ready = None if signature is None or like is not None else _calls.get(signature)
    if ready is not None:  # the fast path
        return ready.call(ready, x, _addresses(given), given, out, stream)
    named = zip(WeightArrays._fields, given, strict=True)
    mine = WeightArrays(*(arrays.import_array(name, array, stream) for name, array in named))
    return call_with(PassedWeights(mine, activation, variant), x, out, stream, like)


def _addresses(given: tuple[Any, ...]) -> WeightAddresses:
    """Addresses of CuPy arrays in the order of `WeightArrays`."""
    gate, up, down, b_gate, b_up, b_down = given
    if up is None:
        gate = up = gate.array
    if b_gate is b_up is b_down is None:  # as in most models
        where = 0 if down is None else down.data.ptr
        return gate.data.ptr, up.data.ptr, where, (), ()
    others = (0 if one is None else one.data.ptr for one in (down, b_gate, b_up, b_down))
    return weight_addresses(gate.data.ptr, up.data.ptr, *others)


def call_with(
    weights: PassedWeights | CheckedWeights, x: Any, out: Any, stream: Any, like: str | None
) -> Any:
    """Compute with imported or checked weights: by a prepared call, or a first one."""
    from_dlpack = convert.exporter_of(like, x)
    x, target = (arrays.import_array(*one, stream) for one in (("x", x), ("out", out)))
    signature = weights.signature(x, target)
    ready = None if signature is None else weights.calls.get(signature)
    if ready is not None:
        result = ready.call(ready, x, weights.addresses, weights.operands, target, stream)
    else:
        result = _first_call(x, weights.checked(stream), target, stream, signature)
    if out is not None:
        return out
    return result if from_dlpack is None else convert.export(result, from_dlpack, stream)


def _first_call(
    x: Any, weights: CheckedWeights, out: Any, stream: Any, signature: CallSignature | None
) -> Any:
    """Check x and `out`, plan and launch; on a GPU, keep the prepared call for others like it."""
    view, views = arrays.view("x", x), weights.operands
    problem.check_x(view, views.gate_up[0])
    rows, device = arrays.matrix(view), view.device
    shape = (*view.shape[:-1], views.columns)
    if out is None and device.kind == "cpu":
        out = arrays.empty(shape, device, view.dtype)
    result = arrays.new_view("out", shape, device, view.dtype)
    if out is not None:
        result = arrays.view("out", out, stream)
        problem.check_out(result, shape, [view, *views.views])
    target = arrays.matrix(result, writing=True)
    if device.kind == "cuda":
        driver().check_process()  # CuPy would say it in CUDA's words
    with arrays.on_stream(device, stream) as handle:
        if result.empty:
            return arrays.empty(shape, device, view.dtype) if out is None else out
        chain = _chain(rows, weights, target)
        if device.kind == "cuda":
            ready = PreparedCall(view, views, result, chain)
            if signature is not None:
                weights.calls.put(signature, ready)
            out = ready.call(ready, view.array, weights.addresses, views, result.array, stream)
            if weights.constant:
                chain.load_weights_ahead()  # from the next call on
            return out
        chain(rows, views, target, handle)
    return result.array


def _chain(x: ArrayView, weights: CheckedWeights, out: ArrayView) -> Chain:
    """Plan for matrices x and out, which may be new, on the current device."""
    first, *second = problem.problems(x, weights.operands, out, weights.activation)
    variant = weights.variant
    of_down = variant if variant in _OF_BOTH else "auto"
    return Chain(plan.plan_for(first, variant), *(plan.plan_for(one, of_down) for one in second))


def clear_caches() -> None:
    """Forget prepared calls, choices, and what is known of devices: the next call is a first one.

    Layers keep the calls that they have prepared.
    """
    _calls.clear()
    plan.choose.cache_clear()
    plan.device_info.cache_clear()
