"""Prepared calls: all that is checked and planned once, for arrays of one signature.

How a call reaches the driver, and why it goes by stored functions where it does:

- `PreparedCall.call` is a function that takes the object, not a bound method: what it may hold is
  device memory, and that is to go with the object, at once, without a cycle to be collected.
- For few tokens it is a closure (`_quickly`): local variables take half the time of attributes,
  and there the host takes as long as the kernels.
- What `Chain.launch` calls are closures of `Driver.launcher`, for the same reason.

Every other step is a method, to be read downwards: `_in_general`, `Chain.launch`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from .. import arrays, problem
from ..arrays import ArrayView
from ..problem import WeightArrays, Weights
from .chain import Chain, WeightAddresses, kernel_addresses
from .driver import driver

#: An intermediate of up to so many bytes is allocated in one piece with the result, and lives as
#: long. Another allocation costs the host about 2 us, which a few tokens of a small model, a dozen
#: on the GPU, do not hide; larger problems do.
JOINED_BYTES = 256 << 10
_ALIGNMENT = 512  # bytes, of what lies in one allocation; as CuPy's pool aligns
_PER_THREAD = 2  # cudaStreamPerThread: one handle, and a stream of its own for each thread

#: Weights and biases as what is not a kernel computes with: arrays in the order of `WeightArrays`,
#: which are viewed for that, or views.
Operands = tuple[Any, ...] | Weights
Call = Callable[["PreparedCall", Any, WeightAddresses, Operands, Any, Any], Any]


class PreparedCall:
    """Call of swiglu, or of the MLP where there is a down projection, on a CUDA device.

    Parameters
    ----------
    x, out : ArrayView
    weights : Weights
        Of the first such call, checked. Only how they lie is kept: no array is held.
    chain : Chain
        For its own use alone.

    Attributes
    ----------
    chain : Chain
    call : function of self, x, addresses, operands, out, stream
        Launches on arrays of the signature that the call was prepared for. x and out are CuPy
        arrays, or None for the last; addresses and operands are of the weights. Returns `out`,
        or a new array. Raises ValueError if `out` overlaps an input, TypeError if `stream` is no
        stream, and DriverError in a forked child or if a launch fails.

    The device must be current when it is made. Calls may come from several threads.
    """

    def __init__(self, x: ArrayView, weights: Weights, out: ArrayView, chain: Chain) -> None:
        cupy = arrays.cupy_module()
        self.chain = chain
        self._of_kernels, self._launch = chain.of_kernels, chain.launch
        self._array, self._allocate = arrays.maker(x.dtype), cupy.cuda.alloc
        self._current_device = cupy.cuda.runtime.getDevice
        self._current_stream = cupy.cuda.get_current_stream
        self._device, self._index = x.device, x.device.index
        self._check_process = driver().check_process
        self._shape = out.shape
        hidden, new = (
            _bytes(arrays.new_view("", shape, x.device, x.dtype))
            for shape in ((chain.plans[0].problem.m, weights.n), self._shape)
        )
        #: 0 without an intermediate, and where an array library allocates it.
        self._hidden_bytes = hidden if chain.of_kernels and weights.down is not None else 0
        self.call: Call = PreparedCall._in_general
        if 0 < self._hidden_bytes <= JOINED_BYTES:
            self.call = self._quickly(new)
        gate, up, down = weights.gate_up[0], weights.gate_up[-1], weights.down
        inputs = x, gate, up, down, *weights.gate_up_biases, *weights.down_biases
        self._inputs = [view and _without_memory(view) for view in inputs]
        self._reaches = [(0, 0) if view is None else arrays.span(view) for view in self._inputs]
        self._out = _without_memory(out)
        self._out_reach = arrays.span(self._out)

    def _in_general(
        self, x: Any, addresses: WeightAddresses, operands: Operands, out: Any, stream: Any
    ) -> Any:
        """Call on any stream, from any device, with or without `out`."""
        self._check_process()
        if stream is not None or self._current_device() != self._index:
            with arrays.on_stream(self._device, stream):
                return self._in_general(x, addresses, operands, out, None)
        address = x.data.ptr
        if out is None:
            out = self._array(self._shape)
        else:
            gate, up, down, gate_up_biases, down_biases = addresses
            inputs = address, gate, up, down, *gate_up_biases, *down_biases
            self._check_apart(inputs, out.data.ptr)
        result, stream = out.data.ptr, self._current_stream().ptr
        if self._hidden_bytes:
            hidden = self._allocate(self._hidden_bytes)  # held until both kernels are launched
            self._launch(address, addresses, hidden.ptr, result, stream)
        elif self._of_kernels:
            self._launch(address, addresses, result, result, stream)
        else:
            self._compute(x, operands, out, stream)
        return out

    def _compute(self, x: Any, operands: Operands, out: Any, stream: int) -> None:
        """Compute with arrays, where not all is kernels' work."""
        weights = operands
        if isinstance(weights, tuple):
            weights = Weights.view(WeightArrays(*weights))
        rows = arrays.matrix(arrays.view("x", x))
        target = arrays.matrix(arrays.view("out", out), writing=True)
        self.chain(rows, weights, target, stream)

    def _quickly(self, result_bytes: int) -> Call:
        """Make the fast path: two kernels on the current stream, new arrays in one allocation.

        It is for few tokens, and has all that it needs at hand. The memory is used again once the
        last result and all that shares its memory are gone, by work on the same stream under the
        same allocator; so CuPy's pool would do, in three times the time.
        """
        check_process, index = self._check_process, self._index
        current_device, current_stream = self._current_device, self._current_stream
        allocate, new_array, shape = self._allocate, self._array, self._shape
        launch_first, launch_second = self.chain.launch_gate_up, self.chain.launch_down
        lock, in_general = self.chain.lock, PreparedCall._in_general
        current_allocator, references = arrays.cupy_module().cuda.get_allocator, sys.getrefcount
        behind = -(-result_bytes // _ALIGNMENT) * _ALIGNMENT
        both = behind + self._hidden_bytes
        memory: Any = None
        allocator: Any = None
        of_stream = -1
        target = hidden = unused = unshared = of_x = 0
        of_weights: WeightAddresses | None = None
        first: tuple[int, ...] = ()
        second: tuple[int, ...] = ()

        def call(
            ready: PreparedCall,
            x: Any,
            weights: WeightAddresses,
            operands: Operands,
            out: Any,
            stream: Any,
        ) -> Any:
            nonlocal memory, allocator, of_stream, target, hidden, unused, unshared
            nonlocal of_weights, of_x, first, second
            check_process()
            if out is not None or stream is not None or current_device() != index:
                return in_general(ready, x, weights, operands, out, stream)
            handle, address = current_stream().ptr, x.data.ptr
            if handle == _PER_THREAD:
                return in_general(ready, x, weights, operands, out, stream)
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
                    first, second = kernel_addresses(address, weights, hidden, target)
                    of_weights, of_x = weights, address
                out = new_array(shape, memory)
                launch_first(first, handle)
                launch_second(second, handle)
            return out

        return call

    def _check_apart(self, inputs: tuple[int, ...], out: int) -> None:
        """Compare ranges of addresses; where these meet, rows may still lie between rows."""
        low, high = out + self._out_reach[0], out + self._out_reach[1]
        for view, address, (first, last) in zip(self._inputs, inputs, self._reaches, strict=True):
            if view is not None and address + first < high and low < address + last:
                problem.check_apart(
                    dataclasses.replace(self._out, pointer=out),
                    dataclasses.replace(view, pointer=address),
                )


def _without_memory(view: ArrayView) -> ArrayView:
    """View an array from its first element, without its memory."""
    return dataclasses.replace(view, pointer=0, array=None)


def _bytes(view: ArrayView) -> int:
    """Count the bytes from the first to the end of the last element."""
    first, last = arrays.span(view)
    return last - first
