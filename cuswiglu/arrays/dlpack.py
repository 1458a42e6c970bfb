"""DLPack capsules: read into `Memory`, and written with dtype bfloat16.

NumPy's reader, and CuPy's before 14.1, know no BF16. The layout of the structures is that of
dlpack.h, versions 0.x and 1.x.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..common.dtypes import ELEMENTS

HOST = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA = 2  # kDLCUDA
CUDA_MANAGED = 13  # kDLCUDAManaged: its device is not where the memory lives
VERSION = (1, 0)  # the newest that is read here
_READ_ONLY = 1  # bit of the flags
_BFLOAT = ELEMENTS["bfloat16"].dlpack
_TYPE_NAMES = {0: "int", 1: "uint", 2: "float", _BFLOAT: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h; the older DLManagedTensor begins with its DLTensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# A handle of its own: ctypes.pythonapi is shared, and others declare arguments on it.
_python = ctypes.PyDLL(None)
_is_valid = _python.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = _python.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


@dataclass(frozen=True)
class Memory:
    """Memory of another library's array, and the object that keeps it alive.

    Attributes
    ----------
    pointer : int
        Address of the first element.
    shape : tuple of int
    strides : tuple of int
        In bytes.
    dtype : str
        Name of the element type, of any that DLPack has.
    index : int or None
        Number of the CUDA device; None on the host, -1 if only the address can tell.
    read_only : bool
    owner : object
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    index: int | None
    read_only: bool
    owner: Any = field(repr=False, compare=False)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Name of a NumPy dtype in `Memory`; one not in the host's byte order keeps its mark."""
    return dtype.name if dtype.isnative else dtype.str


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of a row-major array, in bytes."""
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def read(array: Any, stream: int | None) -> Memory:
    """Read the DLPack capsule that an array exports.

    Parameters
    ----------
    array : object with ``__dlpack__``
    stream : int or None
        Handle of the stream on which an array of a CUDA device will be used: its producer makes
        that stream wait.

    Raises
    ------
    BufferError
        If the capsule cannot be read.

    Notes
    -----
    The capsule is never marked as used, so that it gives the array back when nobody holds it.
    """
    options = {} if stream is None else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=VERSION, **options)
    except TypeError:  # a producer from before versions
        capsule = array.__dlpack__(**options)
    tensor, flags = _opened(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    itemsize = tensor.bits * tensor.lanes // 8
    if tensor.strides:
        strides = tuple(step * itemsize for step in tensor.strides[: tensor.ndim])
    else:
        strides = row_major(shape, itemsize)
    dtype = f"{_TYPE_NAMES.get(tensor.code, f'DLPack {tensor.code}:')}{tensor.bits}"
    return Memory(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        dtype=dtype if tensor.lanes == 1 else f"{dtype}x{tensor.lanes}",
        index={CUDA: tensor.device_id, CUDA_MANAGED: -1}.get(tensor.device_type),
        read_only=bool(flags & _READ_ONLY),
        owner=capsule,
    )


def _opened(capsule: Any) -> tuple[_Tensor, int]:
    """Return the tensor in a capsule, and its flags."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != VERSION[0]:
            raise BufferError(f"DLPack {versioned.major}.{versioned.minor} is too new")
        return versioned.tensor, versioned.flags
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor")), 0
    raise BufferError(f"__dlpack__ gave {capsule!r}, no capsule that was not used")


class Bfloat16:
    """DLPack producer that exports an array of 16-bit integers as bfloat16."""

    def __init__(self, pattern: Any) -> None:
        self.pattern = pattern

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.pattern.__dlpack_device__()
        return int(kind), int(index)

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.pattern.__dlpack__(**options)
        _opened(capsule)[0].code = _BFLOAT  # it is new, and nobody else's yet
        return capsule
