"""NumPy and CuPy arrays over memory that belongs to another library."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

import numpy as np

from .dlpack import Memory, dtype_name, row_major


class ArrayInterface:
    """Memory on the host, or mere addresses, in NumPy's `__array_interface__`; holds the owner."""

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
    """Make a NumPy array over host memory; read-only where the memory is."""
    return np.asarray(ArrayInterface(memory, dtype.itemsize)).view(dtype)


def read_cuda_interface(array: Any) -> tuple[Memory, int | None]:
    """Read ``__cuda_array_interface__``: the memory, and its stream's handle or None.

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
    """Find the CUDA device that holds the memory; the current one if there is no element."""
    if memory.index is not None and memory.index >= 0:
        return memory.index
    if 0 in memory.shape:
        return int(cupy.cuda.runtime.getDevice())
    return int(cupy.cuda.runtime.pointerGetAttributes(memory.pointer).device)


def on_cuda(cupy: Any, memory: Memory, dtype: np.dtype[Any], device: int) -> Any:
    """Make a CuPy array over device memory, for use on the current stream."""
    steps = zip(memory.shape, memory.strides, strict=True)
    extent = dtype.itemsize + sum((n - 1) * step for n, step in steps if n and step > 0)
    owner = ForeignArray(cupy, memory.owner, device)
    unowned = cupy.cuda.UnownedMemory(memory.pointer, extent, owner, device)
    pointer = cupy.cuda.MemoryPointer(unowned, 0)
    return cupy.ndarray(memory.shape, dtype, pointer, strides=memory.strides)


#: (event, array): arrays that nobody uses any more, released once their streams pass the events.
held: deque[tuple[Any, Any]] = deque()


class ForeignArray:
    """Another library's array, kept alive until the current stream is done with it.

    The library does not know that stream, and may reuse the memory as soon as it has the array
    back. An array whose stream is still at work is released when a later one is taken.
    """

    def __init__(self, cupy: Any, array: Any, device: int) -> None:
        self._array = array
        self._device, self._stream = cupy.cuda.Device(device), cupy.cuda.get_current_stream()
        if not self._stream.is_capturing():  # where events may not be asked
            _release_finished()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the stream is gone, or the process at its end
            if not self._stream.is_capturing():
                with self._device:
                    held.append((self._stream.record(), self._array))


def _release_finished() -> None:
    """Release arrays whose streams are done; safe in several threads, and if called by itself."""
    for _ in range(len(held)):
        with contextlib.suppress(IndexError):
            event, array = held.popleft()
            if not event.done:
                held.append((event, array))
