"""Arrays of other libraries, as NumPy's or CuPy's over the same memory."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

import numpy as np

from .dlpack import Memory, dtype_name, row_major


class ArrayInterface:
    """Lends memory on the host to NumPy, or addresses, which are not looked at."""

    def __init__(self, memory: Memory, itemsize: int) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{itemsize}",
            "data": (memory.pointer, memory.read_only),
            "shape": memory.shape,
            "strides": memory.strides,
        }


def on_host(memory: Memory, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The NumPy array; read-only where the memory is."""
    return np.asarray(ArrayInterface(memory, dtype.itemsize)).view(dtype)


def read_cuda_interface(array: Any) -> tuple[Memory, int | None]:
    """What ``array.__cuda_array_interface__`` says, and its stream, None where there is none.

    Raises
    ------
    BufferError
        If elements are masked.
    """
    found = array.__cuda_array_interface__
    if found.get("mask") is not None:
        raise BufferError("its __cuda_array_interface__ has a mask")
    pointer, read_only = found["data"]
    dtype, shape = np.dtype(found["typestr"]), tuple(found["shape"])
    strides = found.get("strides")
    strides = row_major(shape, dtype.itemsize) if strides is None else tuple(strides)
    name = dtype_name(dtype)
    memory = Memory(pointer or 0, shape, strides, name, -1, bool(read_only), array)
    return memory, found.get("stream")


def device_of(cupy: Any, memory: Memory) -> int:
    """The CUDA device it lives on; the current one where there is no element."""
    if memory.index is not None and memory.index >= 0:
        return memory.index
    if 0 in memory.shape:
        return int(cupy.cuda.runtime.getDevice())
    return int(cupy.cuda.runtime.pointerGetAttributes(memory.pointer).device)


def on_cuda(cupy: Any, memory: Memory, dtype: np.dtype[Any], device: int) -> Any:
    """The CuPy array, for use on the current stream."""
    steps = zip(memory.shape, memory.strides, strict=True)
    extent = dtype.itemsize + sum((n - 1) * step for n, step in steps if n and step > 0)
    loan = ForeignArray(cupy, memory.owner, device)
    unowned = cupy.cuda.UnownedMemory(memory.pointer, extent, loan, device)
    pointer = cupy.cuda.MemoryPointer(unowned, 0)
    return cupy.ndarray(memory.shape, dtype, pointer, strides=memory.strides)


#: (event, array): given back to their libraries once the events are done.
_held: deque[tuple[Any, Any]] = deque()


class ForeignArray:
    """Another library's array, held until the stream that it was borrowed for is done with it.

    The library does not know that stream: it may give the memory to others as soon as it has the
    array back. What is not done when the loan ends waits for the next loan.
    """

    def __init__(self, cupy: Any, array: Any, device: int) -> None:
        self._array = array
        self._device, self._stream = cupy.cuda.Device(device), cupy.cuda.get_current_stream()
        if not self._stream.is_capturing():  # where events may not be asked
            _give_back()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the stream is gone, or the process at its end
            if not self._stream.is_capturing():
                with self._device:
                    _held.append((self._stream.record(), self._array))


def _give_back() -> None:
    """Drop what is done; safe in several threads, and if dropping ends other loans."""
    for _ in range(len(_held)):
        with contextlib.suppress(IndexError):
            event, array = _held.popleft()
            if not event.done:
                _held.append((event, array))
