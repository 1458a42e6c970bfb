"""CuPy arrays without a GPU: host memory behind device pointers, which nothing may dereference."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.helpers.calls import good
from tests.helpers.host_arrays import BF16, poisoned

cupy = pytest.importorskip("cupy", reason="device arrays are CuPy's")


def on_device(array, index=0):
    """A CuPy array on CUDA device `index`, over the memory of a NumPy array."""
    address = array.ctypes.data
    memory = cupy.cuda.UnownedMemory(address, max(_extent(array), 1), array, index)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray(array.shape, array.dtype, pointer, strides=array.strides)


def on_host(array):
    """The NumPy array over the same memory; the opposite of `on_device`."""
    memory = (ctypes.c_uint8 * _extent(array)).from_address(array.data.ptr)
    flat = np.frombuffer(memory, np.uint8).view(array.dtype)
    return np.lib.stride_tricks.as_strided(flat, array.shape, array.strides)


def all_on_device(function, index=0, **options):
    """Good arguments of a function, on CUDA device `index`."""
    return {name: on_device(array, index) for name, array in good(function, **options).items()}


def _extent(array):
    """Bytes from the first element to the end of the last; no stride may be negative."""
    assert all(stride >= 0 for stride in array.strides)
    steps = zip(array.shape, array.strides, strict=True)
    return array.itemsize + sum((extent - 1) * stride for extent, stride in steps if extent)


def device_poisoned(*shape, offset=0, index=0, dtype=BF16):
    return on_device(poisoned(*shape, offset=offset, dtype=dtype), index)
