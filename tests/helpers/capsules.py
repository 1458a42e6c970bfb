"""DLPack capsules over host memory, as producers of other libraries make them."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


# A handle of its own: ctypes.pythonapi is shared, and others declare arguments on it.
_python = ctypes.PyDLL(None)
_new = _python.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_context = _python.PyCapsule_GetContext
_context.restype, _context.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
_set_context = _python.PyCapsule_SetContext
_set_context.argtypes = [ctypes.py_object, ctypes.c_void_p]

#: What capsules that are alive export, by their number.
lent = {}
_numbers = itertools.count(1)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _given_back(capsule):
    del lent[_context(capsule)]


def export(
    pointer,
    shape,
    strides,
    *,
    device=(1, 0),
    dtype=("bfloat", 16),
    lanes=1,
    version=(1, 0),
    read_only=False,
    offset=0,
    owner=None,
):
    """A capsule; `strides` are in elements or None, and of DLPack 0.x if `version` is None."""
    held = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(shape))(*(strides or ()))
    code = CODES.get(dtype[0], dtype[0])
    tensor = Tensor(pointer, device, len(shape), code, dtype[1], lanes)
    tensor.shape, tensor.byte_offset = held[0], offset
    if strides is not None:
        tensor.strides = held[1]
    if version is None:
        managed, name = Managed(tensor, None, None), b"dltensor"
    else:
        managed = Versioned(version, None, None, int(read_only), tensor)
        name = b"dltensor_versioned"
    number = next(_numbers)
    lent[number] = managed, name, held, owner
    capsule = _new(ctypes.addressof(managed), name, ctypes.cast(_given_back, ctypes.c_void_p))
    _set_context(capsule, number)
    return capsule


class Producer:
    """Another library's array over a NumPy or CuPy array, on the host unless CuPy's.

    `told` are the streams that it was told; `changes` are of its capsules.
    """

    def __init__(self, array, **changes):
        self.array, self.changes, self.told = array, changes, []
        on_device = not isinstance(array, np.ndarray)
        self.pointer = array.data.ptr if on_device else array.ctypes.data
        self.device = (2, array.device.id) if on_device else (1, 0)

    def __dlpack_device__(self):
        return self.changes.get("device", self.device)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.told.append(stream)
        strides = tuple(step // self.array.itemsize for step in self.array.strides)
        options = {"device": self.device, "strides": strides, "owner": self.array} | self.changes
        return export(options.pop("pointer", self.pointer), self.array.shape, **options)


class OldProducer(Producer):
    """From before DLPack had versions."""

    def __dlpack__(self, *, stream=None):
        return super().__dlpack__(stream=stream)
