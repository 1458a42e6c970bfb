"""`ArrayView`: how an array of any library lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..common.device import Device
from ..common.dtypes import BFLOAT16, DTYPES
from . import allocate, foreign
from .dlpack import Memory


@dataclass(frozen=True)
class ArrayView:
    """Address, shape, strides, dtype and device of an array.

    Attributes
    ----------
    name : str
        The argument's name, for messages.
    pointer : int
        Address of the first element.
    shape, strides : tuple of int
        Both in elements.
    dtype : str
        Name of the element type, "bfloat16" or "float16".
    device : Device
    writable : bool
    array : numpy.ndarray, cupy.ndarray or None
        Keeps the memory alive, and is what the NumPy and cuBLAS backends compute with. None for an
        array that is not allocated yet.
    packing : int
        Columns by which gate and up alternate in packed weights; 0 for any other array.
    """

    name: str
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: Device
    writable: bool
    array: Any = field(repr=False, compare=False)
    packing: int = 0

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def empty(self) -> bool:
        """Whether it has no element."""
        return 0 in self.shape

    def like(self, array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayView:
        """Return a view of the same memory with other dimensions, strides in elements."""
        return ArrayView(
            self.name, self.pointer, shape, strides, self.dtype, self.device, self.writable, array
        )


def new_view(
    name: str, shape: tuple[int, ...], device: Device, dtype: str = BFLOAT16.name
) -> ArrayView:
    """Describe an array not allocated yet: row-major, as `empty` will make it, at address 0."""
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return ArrayView(name, 0, shape, strides, dtype, device, True, None)


def matrix(array: ArrayView, *, writing: bool = False) -> ArrayView:
    """See (..., C) as (rows, C), a view: all but the last dimension become one.

    Raises
    ------
    ValueError
        If no single stride walks the leading dimensions, or the last is not contiguous.
    """
    *leading, columns = array.shape
    if array.strides[-1] != 1 and columns > 1 and not array.empty:
        raise ValueError(
            f"{array.name} must be contiguous along its last dimension, got strides "
            f"{array.strides} (elements) for shape {array.shape}: pass {_contiguous(array)}"
        )
    rows, stride = 1, columns
    for extent, step in zip(reversed(leading), reversed(array.strides[:-1]), strict=True):
        if extent == 1:
            continue
        if rows == 1:
            stride = step
        elif step != stride * rows and not array.empty:
            raise ValueError(
                f"{array.name}'s leading dimensions must be walked by one stride, got strides "
                f"{array.strides} (elements) for shape {array.shape}: pass {_contiguous(array)}"
            )
        rows *= extent
    if rows > 1 and stride < columns and not array.empty:
        raise ValueError(
            f"{array.name}'s rows must not overlap, got a row stride of {stride} elements for "
            f"rows of {columns}: pass {_contiguous(array)}"
        )
    shape = (rows, columns)
    return array.like(_reshape(array, shape, stride, writing), shape, (stride, 1))


def _contiguous(array: ArrayView) -> str:
    library = "numpy" if array.device.kind == "cpu" else "cupy"
    return f"{library}.ascontiguousarray({array.name})"


def _reshape(array: ArrayView, shape: tuple[int, ...], stride: int, writing: bool) -> Any:
    if array.array is None:
        return None
    if array.ndim == 2 or array.empty:
        return array.array.reshape(shape)
    strides = (stride * array.array.itemsize, array.array.itemsize)
    if array.device.kind == "cpu":
        return np.lib.stride_tricks.as_strided(array.array, shape, strides, writeable=writing)
    return allocate.cupy_module().lib.stride_tricks.as_strided(array.array, shape, strides)


def span(array: ArrayView) -> tuple[int, int]:
    """Address of the first byte an array touches, and of the byte after the last."""
    if array.empty:
        return array.pointer, array.pointer
    itemsize = DTYPES[array.dtype].itemsize
    steps = [s * (n - 1) for n, s in zip(array.shape, array.strides, strict=True)]
    low = array.pointer + itemsize * sum(step for step in steps if step < 0)
    return low, array.pointer + itemsize * (1 + sum(step for step in steps if step > 0))


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays share an element; addresses only, nothing is read."""
    (a_low, a_high), (b_low, b_high) = span(a), span(b)
    if a.device != b.device or a_high <= b_low or b_high <= a_low:
        return False
    return bool(np.shares_memory(_address_range(a), _address_range(b)))


def _address_range(array: ArrayView) -> np.ndarray[Any, Any]:
    """Make a NumPy array of the same addresses, for `numpy.shares_memory`; it is never read."""
    element = DTYPES[array.dtype]
    strides = tuple(stride * element.itemsize for stride in array.strides)
    addresses = Memory(array.pointer, array.shape, strides, array.dtype, None, True, None)
    return foreign.on_host(addresses, element)
