"""Calls made ready: all that is checked and planned once for arrays of one kind.

Two CuPy arrays are of one kind if they differ in their address alone, and that by a multiple of 16
bytes. What a call checks and plans depends on the kinds of its arrays, but for whether `out`
overlaps an input, which depends on the addresses and is looked at each time.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .. import arrays, problem
from ..arrays import ArrayView
from ..common.dtypes import BFLOAT16, DTYPES, FLOAT16
from ..problem import TMA_ALIGNMENT, PackedWeights
from ..problem.activations import ClampedSwiGLU
from ..problem.biases import Biases
from . import plan
from .plan import Plan, Sm90Plan

#: Shape, strides in bytes (None if contiguous), device, address modulo 16, and True of FP16 alone.
Kind = (
    tuple[tuple[int, ...], tuple[int, ...] | None, int, int]
    | tuple[tuple[int, ...], tuple[int, ...] | None, int, int, bool]
)
#: Of a call: the variant, the activation, and the kinds of the arrays; or of x alone where all else
#: is the same.
Key = tuple[Any, ...]
#: Of gate, up and down; of packed weights twice the same, and of no w_down 0. Then of the biases of
#: gate and up, and of down, as a plan takes them: two each, or none.
WeightAddresses = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]
Call = Callable[["PreparedCall", Any, WeightAddresses, Any, Any, Any], Any]
#: An intermediate of up to so many bytes is allocated in one piece with the result, and lives as
#: long. Another allocation costs the host about 2 us, which a few tokens of a small model, a dozen
#: on the GPU, do not hide; larger problems do.
JOINED_BYTES = 256 << 10
_ALIGNMENT = 512  # of what lies in one allocation; as CuPy's pool aligns
_PER_THREAD = 2  # cudaStreamPerThread: one handle, and a stream of its own for each thread


_ndarray: Any = None  # CuPy's, once an array of it has been met


def kind(array: Any) -> Kind | None:
    """The kind of a BF16 or FP16 CuPy array; None of anything else."""
    global _ndarray
    if type(array) is not _ndarray:
        cupy = sys.modules.get("cupy")
        if cupy is None or type(array) is not cupy.ndarray:
            return None
        _ndarray = cupy.ndarray
    dtype = array.dtype
    memory = array.data
    try:  # takes less time than to ask for strides, or for flags
        strides = None if array._c_contiguous else array.strides
    except AttributeError:  # another CuPy
        strides = array.strides
    # The first is quick, and nearly always so.
    if dtype is BFLOAT16 or dtype == BFLOAT16:
        return array.shape, strides, memory.device_id, memory.ptr % TMA_ALIGNMENT
    if dtype == FLOAT16:
        return array.shape, strides, memory.device_id, memory.ptr % TMA_ALIGNMENT, True
    return None


def key(variant: str, activation: str | ClampedSwiGLU, *given: Any) -> Key | None:
    """What the arguments of a call have in common with those of others like it.

    Parameters
    ----------
    variant : str
    activation : str or ClampedSwiGLU
    *given : array, PackedWeights or None

    Returns
    -------
    tuple or None
        None if an argument is no CuPy array of a dtype that is computed.
    """
    if type(variant) is not str:
        return None
    if type(activation) is not str and type(activation) is not ClampedSwiGLU:
        return None
    parts: list[Any] = [variant, activation]
    for array in given:
        part: Any = None
        if type(array) is PackedWeights:
            part = kind(array.array)
            part = part and (array.granularity, part)
        elif array is not None:
            part = kind(array)
        if part is None and array is not None:
            return None
        parts.append(part)
    return tuple(parts)


def addresses(w_gate: Any, w_up: Any, w_down: Any, biases: Sequence[Any]) -> WeightAddresses:
    """Of the weights and the biases, all or none, of a call that has a key."""
    if w_up is None:
        w_gate = w_up = w_gate.array
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()
    if biases:
        gate, up, *down = (0 if bias is None else bias.data.ptr for bias in biases)
        first = (gate, up) if gate or up else ()
        second = (down[0], 0) if down and down[0] else ()
    return w_gate.data.ptr, w_up.data.ptr, 0 if w_down is None else w_down.data.ptr, first, second


def addresses_of(
    gate_up: Sequence[ArrayView], down: ArrayView | None, biases: Biases
) -> WeightAddresses:
    """Of weights and biases that were looked at one by one."""
    first, second = (
        tuple(0 if bias is None else bias.pointer for bias in added)
        for added in (biases.of_gate_up, biases.of_down)
    )
    gate, up = gate_up[0].pointer, gate_up[-1].pointer
    return gate, up, 0 if down is None else down.pointer, first, second


class PreparedCall:
    """swiglu, or mlp where there is `down`, of arrays of one kind on a CUDA device.

    Parameters
    ----------
    x, out : ArrayView
    gate_up : sequence of ArrayView
    down : ArrayView or None
    biases : Biases
        Of the first such call, checked. Only how they lie is kept: no array is held.
    first : Sm90Plan
        Of gate and up.
    second : plan, optional
        Of the down projection.

    Attributes
    ----------
    plans : tuple of plan
        Of gate and up, and of the down projection if there is one.
    call : function of self, x, weights, down, out, stream
        Launches on arrays of the kind that the call was made ready for. x and out are CuPy arrays,
        or None for the last; weights are as `addresses` gives them, and down holds the array of
        w_down, if there is one, and that of b_down. Returns `out`, or a new array. Raises
        ValueError if `out` overlaps an input, TypeError if `stream` is no stream, and DriverError
        in a forked child or if a launch fails. No bound method: the device memory that it may hold
        is to go with the object.

    The device must be current. Calls may come from several threads.
    """

    def __init__(
        self,
        x: ArrayView,
        gate_up: Sequence[ArrayView],
        down: ArrayView | None,
        biases: Biases,
        out: ArrayView,
        first: Sm90Plan,
        second: Plan | None = None,
    ) -> None:
        cupy = arrays.cupy_module()
        self._array, self._allocate = arrays.maker(x.dtype), cupy.cuda.alloc
        self._current_device = cupy.cuda.runtime.getDevice
        self._current_stream = cupy.cuda.get_current_stream
        self._device, self._index = x.device, x.device.index
        self._check_process = first.check_process
        self._lock = threading.Lock()
        self._shape = out.shape
        self._hidden = first.problem.m, first.problem.n
        self._itemsize = DTYPES[x.dtype].itemsize
        self._hidden_bytes = math.prod(self._hidden) * self._itemsize
        # Plans of its own: the weights' addresses, once packed, stay.
        self._first = plan.kernel_plan(first.problem, first.choice)
        self.plans: tuple[Plan, ...] = (self._first,)
        self._run = PreparedCall._gate_up_alone
        self.call: Call = PreparedCall._in_general
        if isinstance(second, Sm90Plan):
            self._second = plan.kernel_plan(second.problem, second.choice)
            self.plans = self._first, self._second
            self._run = PreparedCall._with_kernel
            if self._hidden_bytes <= JOINED_BYTES:
                self.call = self._quickly()
        elif second is not None:
            self._portable = second
            self.plans = self._first, second
            self._run = PreparedCall._with_arrays
        inputs = x, gate_up[0], gate_up[-1], down, *biases.of_gate_up, *biases.of_down
        self._inputs = [view and _without_memory(view) for view in inputs]
        self._reaches = [(0, 0) if view is None else arrays.span(view) for view in self._inputs]
        self._out = _without_memory(out)
        self._out_reach = arrays.span(self._out)

    def load_weights_ahead(self) -> None:
        """As `Sm90Plan.load_weights_ahead`, of gate and up; down's are already."""
        self._first.load_weights_ahead()

    def _in_general(
        self, x: Any, weights: WeightAddresses, down: Any, out: Any, stream: Any
    ) -> Any:
        self._check_process()
        address = x.data.ptr
        if out is not None:
            gate, up, projection, of_gate_up, of_down = weights
            inputs = address, gate, up, projection, *of_gate_up, *of_down
            self._check_apart(inputs, out.data.ptr)
        if stream is None and self._current_device() == self._index:
            return self._run(self, address, weights, down, out, self._current_stream().ptr)
        with arrays.on_stream(self._device, stream) as handle:
            return self._run(self, address, weights, down, out, handle)

    def _quickly(self) -> Call:
        """What few tokens take: two kernels on the current stream, new arrays in one allocation.

        All it needs is at hand, for it takes as long as the kernels. The memory is used again once
        the last result and all that shares its memory are gone, by work on the same stream under
        the same allocator; so CuPy's pool would do, in three times the time.
        """
        check_process, index = self._check_process, self._index
        current_device, current_stream = self._current_device, self._current_stream
        allocate, new_array, shape, lock = self._allocate, self._array, self._shape, self._lock
        launch_first, launch_second = self._first.launch, self._second.launch
        current_allocator, references = arrays.cupy_module().cuda.get_allocator, sys.getrefcount
        result_bytes = math.prod(shape) * self._itemsize
        behind = -(-result_bytes // _ALIGNMENT) * _ALIGNMENT
        both = behind + self._hidden_bytes
        memory: Any = None
        allocator: Any = None
        of_stream = -1
        target = hidden = unused = unshared = 0
        of_weights: WeightAddresses | None = None
        of_x = 0
        first: tuple[int, ...] = ()
        second: tuple[int, ...] = ()

        def call(
            ready: PreparedCall, x: Any, weights: WeightAddresses, down: Any, out: Any, stream: Any
        ) -> Any:
            nonlocal memory, allocator, of_stream, target, hidden, unused, unshared
            nonlocal of_weights, of_x, first, second
            check_process()
            if out is not None or stream is not None or current_device() != index:
                return ready._in_general(x, weights, down, out, stream)
            handle, address = current_stream().ptr, x.data.ptr
            if handle == _PER_THREAD:
                return ready._in_general(x, weights, down, out, stream)
            with lock:
                if (
                    of_stream != handle
                    or current_allocator() is not allocator
                    or references(memory) != unused
                    or references(memory.mem) != unshared
                ):
                    memory, of_stream = None, -1  # in case of an error
                    memory = allocate(both)
                    allocator, of_stream, target = current_allocator(), handle, memory.ptr
                    hidden = target + behind
                    unused, unshared = references(memory), references(memory.mem)
                    of_weights = None
                if weights is not of_weights or address != of_x:
                    gate, up, projection, of_gate_up, of_down = weights
                    first = (address, gate, up, hidden, *of_gate_up)
                    second = (hidden, projection, projection, target, *of_down)
                    of_weights, of_x = weights, address
                out = new_array(shape, memory)
                launch_first(first, handle)
                launch_second(second, handle)
            return out

        return call

    # The device and the stream are current in these.

    def _gate_up_alone(
        self, x: int, weights: WeightAddresses, down: Any, out: Any, stream: int
    ) -> Any:
        if out is None:
            out = self._array(self._shape)
        gate, up, _, biases, _ = weights
        with self._lock:
            operands = x, gate, up, out.data.ptr
            self._first.launch(operands + biases, stream)
        return out

    def _with_kernel(
        self, x: int, weights: WeightAddresses, down: Any, out: Any, stream: int
    ) -> Any:
        if out is None:
            out = self._array(self._shape)
        memory = self._allocate(self._hidden_bytes)
        gate, up, projection, of_gate_up, of_down = weights
        with self._lock:
            self._first.launch((x, gate, up, memory.ptr, *of_gate_up), stream)
            self._second.launch(
                (memory.ptr, projection, projection, out.data.ptr, *of_down), stream
            )
        return out

    def _with_arrays(
        self, x: int, weights: WeightAddresses, down: Any, out: Any, stream: int
    ) -> Any:
        if out is None:
            out = self._array(self._shape)
        hidden = self._array(self._hidden)
        gate, up, _, biases, _ = weights
        with self._lock:
            self._first.launch((x, gate, up, hidden.data.ptr, *biases), stream)
        rows = arrays.matrix(arrays.view("out", out), writing=True)
        projection, *bias = down
        self._portable.compute(hidden, (projection,), rows.array, bias)
        return out

    def _check_apart(self, inputs: tuple[int, ...], out: int) -> None:
        """Compares ranges of addresses; where these meet, rows may still lie between rows."""
        low, high = out + self._out_reach[0], out + self._out_reach[1]
        for view, address, (first, last) in zip(self._inputs, inputs, self._reaches, strict=True):
            if view is not None and address + first < high and low < address + last:
                problem.check_apart(
                    dataclasses.replace(self._out, pointer=out),
                    dataclasses.replace(view, pointer=address),
                )


def _without_memory(view: ArrayView) -> ArrayView:
    """How an array lies, seen from its first element."""
    return dataclasses.replace(view, pointer=0, array=None)
