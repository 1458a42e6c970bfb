"""Arrays: with borrowed.py and dlpack.py the only room that knows NumPy, CuPy and other libraries.

Everything past this module works on `ArrayView`.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from . import borrowed, dlpack, streams
from .dlpack import Memory, dtype_name

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
#: What is computed with, by name; the arrays of a call are of one.
DTYPES: dict[str, np.dtype[Any]] = {dtype.name: dtype for dtype in (BFLOAT16, FLOAT16)}
CUPY_MAJOR = 14  # the first with bfloat16
#: What may hold the bit pattern of BF16, if `asarray` is told that it does.
PATTERNS = ("uint16", "int16", "void16")
_ELEMENTS: dict[str, np.dtype[Any]] = {**dict.fromkeys(PATTERNS, BFLOAT16), **DTYPES}


@dataclass(frozen=True)
class Device:
    """Where an array lives: the host, or one CUDA device."""

    kind: str  # "cpu" or "cuda"
    index: int = 0

    def __str__(self) -> str:
        return "the CPU" if self.kind == "cpu" else f"CUDA device {self.index}"


CPU = Device("cpu")


@dataclass(frozen=True)
class ArrayView:
    """An array as the library sees it.

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
        Keeps the memory alive, and is what backends on array libraries compute with. None of an
        array that is not there yet.
    packing : int
        Of packed weights, the columns that gate and up take turns by; 0 of any other array.
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
        return len(self.shape)

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    def like(self, array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayView:
        """The same memory with other dimensions."""
        return ArrayView(
            self.name, self.pointer, shape, strides, self.dtype, self.device, self.writable, array
        )


def is_cupy(array: Any) -> bool:
    """Whether `array` is a CuPy array; never imports CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def view(name: str, array: Any, stream: Any = None) -> ArrayView:
    """Look at `array` without copying it.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    array : array
        As in `asarray`.
    stream : optional
        Where the array will be used, as in `streams.current`: its producer is told.

    Raises
    ------
    TypeError
        If it is no array, or of a dtype that is not in `DTYPES`.
    ValueError
        If its strides are no whole elements, or its library does not give it away.
    """
    array = taken(name, array, stream)
    if isinstance(array, np.ndarray):
        pointer, device, writable = array.ctypes.data, CPU, bool(array.flags.writeable)
    elif is_cupy(array):
        pointer, device, writable = int(array.data.ptr), Device("cuda", array.device.id), True
    else:
        raise TypeError(
            f"{name} must be a NumPy or CuPy array, or another library's with __dlpack__ or "
            f"__cuda_array_interface__, got {type(array).__name__}: make one with numpy.asarray "
            "or cupy.asarray"
        )
    dtype = dtype_name(array.dtype)
    if dtype not in DTYPES:
        raise _unsupported(name, dtype)
    if any(stride % array.itemsize for stride in array.strides):
        raise ValueError(
            f"{name} must have strides of whole elements, got {array.strides} bytes: "
            f"pass {name}.copy()"
        )
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return ArrayView(name, pointer, tuple(array.shape), strides, dtype, device, writable, array)


def _unsupported(name: str, dtype: str) -> TypeError:
    way_out = f"convert it with {name}.astype(ml_dtypes.bfloat16) or {name}.astype(numpy.float16)"
    if dtype in PATTERNS:
        way_out = (
            f'pass cuswiglu.asarray({name}, dtype="bfloat16") if these are the bits of BF16, else '
            + way_out
        )
    return TypeError(
        f"{name} must have dtype bfloat16 or float16, got {dtype} (supported: these, and bits of "
        f"bfloat16 as {', '.join(PATTERNS)} through cuswiglu.asarray): {way_out}"
    )


def is_own(array: Any) -> bool:
    """Whether it is NumPy's or CuPy's."""
    return isinstance(array, np.ndarray) or is_cupy(array)


def taken(name: str, array: Any, stream: Any = None, *, patterns: bool = False) -> Any:
    """Another library's array as NumPy's or CuPy's; anything else as it is.

    `patterns` takes 16-bit integers for BF16. An `out` that may not be written is refused.
    """
    if is_own(array):
        return array
    try:
        if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            return _by_dlpack(name, array, stream, patterns)
        if hasattr(array, "__cuda_array_interface__"):
            return _by_cuda_interface(name, array, stream, patterns)
    except BufferError as error:
        raise ValueError(
            f"{name} cannot be taken from its library, got {type(array).__name__}: {error}"
        ) from error
    return array


def _by_dlpack(name: str, array: Any, stream: Any, patterns: bool) -> Any:
    kind, index = (int(number) for number in array.__dlpack_device__())
    if kind in dlpack.HOST:
        memory = _checked(name, array, dlpack.read(array, None), patterns)
        return borrowed.on_host(memory, _element(memory))
    if kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise TypeError(
            f"{name} must live on the CPU or on a CUDA device, got {type(array).__name__} with "
            f"DLPack device type {kind}: copy it there"
        )
    with on_stream(Device("cuda", index), stream) as handle:
        # 0 says nothing in DLPack, and 1 is the null stream.
        memory = _checked(name, array, dlpack.read(array, handle or 1), patterns)
        device = borrowed.device_of(cupy_module(), memory)
        return borrowed.on_cuda(cupy_module(), memory, _element(memory), device)


def _by_cuda_interface(name: str, array: Any, stream: Any, patterns: bool) -> Any:
    memory, producer = borrowed.read_cuda_interface(array)
    memory, cupy = _checked(name, array, memory, patterns), cupy_module()
    device = borrowed.device_of(cupy, memory)
    with on_stream(Device("cuda", device), stream):
        if producer is not None:
            streams.wait(cupy, device, producer)
        return borrowed.on_cuda(cupy, memory, _element(memory), device)


def _element(memory: Memory) -> np.dtype[Any]:
    """What its elements are taken for."""
    return _ELEMENTS[memory.dtype]


def _checked(name: str, array: Any, memory: Memory, patterns: bool) -> Memory:
    if memory.dtype not in DTYPES and not (patterns and memory.dtype in PATTERNS):
        raise _unsupported(name, memory.dtype)
    # JAX's arrays never change, though its capsules do not say so.
    if type(array).__module__.partition(".")[0] in ("jax", "jaxlib"):
        memory = replace(memory, read_only=True)
    if name == "out" and memory.read_only:
        raise ValueError(
            f"out must be writable, got a read-only {type(array).__name__}: pass a copy of it"
        )
    return memory


def on_stream(device: Device, stream: Any) -> AbstractContextManager[int]:
    """Make a device and a stream current; gives the stream's handle (0 on the CPU).

    Raises
    ------
    TypeError
        If `stream` is no stream, or is given for arrays on the CPU.
    """
    if device.kind == "cuda":
        return streams.current(cupy_module(), device.index, stream)
    if stream is not None:
        raise TypeError("stream must be None for arrays on the CPU, got a stream")
    return nullcontext(0)


@functools.cache
def cupy_module() -> Any:
    """CuPy, imported when the first device array is met.

    Raises
    ------
    ImportError
        If it is not installed, or older than `CUPY_MAJOR`.
    """
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            "arrays on a CUDA device need CuPy, which cannot be imported here "
            f"({error}): pip install 'cuswiglu[cuda12]' or 'cuswiglu[cuda13]'"
        ) from error
    if int(cupy.__version__.partition(".")[0]) < CUPY_MAJOR:
        raise ImportError(
            f"arrays on a CUDA device need CuPy {CUPY_MAJOR} or newer, which knows bfloat16, got "
            f"CuPy {cupy.__version__}: pip install --upgrade 'cuswiglu[cuda12]' or "
            "'cuswiglu[cuda13]'"
        )
    return cupy


def empty(shape: tuple[int, ...], device: Device, dtype: str = BFLOAT16.name) -> Any:
    """A new row-major array, from CuPy's memory pool on a CUDA device."""
    element = DTYPES[dtype]
    if device.kind == "cpu":
        return np.empty(shape, element)
    cupy = cupy_module()
    with cupy.cuda.Device(device.index):
        return cupy.empty(shape, element)


def maker(dtype: str) -> Callable[..., Any]:
    """What makes a new C-contiguous array on the current CUDA device, again and again.

    Called with a shape, and, to place it there, memory of CuPy's. Of `cupy.ndarray` only the part
    that does the work is called, where this CuPy has it: that takes half the time, which a call of
    few tokens feels.
    """
    ndarray, element = cupy_module().ndarray, DTYPES[dtype]
    initialise: Any = getattr(ndarray, "_init", None)
    if initialise is None:
        return lambda shape, memory=None: ndarray(shape, element, memory)
    create = ndarray.__base__.__new__

    def make(shape: tuple[int, ...], memory: Any = None) -> Any:
        array = create(ndarray)
        initialise(array, shape, element, memory, None, None)  # no strides, no order
        return array

    return make


def to_be(
    name: str, shape: tuple[int, ...], device: Device, dtype: str = BFLOAT16.name
) -> ArrayView:
    """How a new array will lie: row-major, as `empty` makes it, at an address still unknown."""
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
    return cupy_module().lib.stride_tricks.as_strided(array.array, shape, strides)


def span(array: ArrayView) -> tuple[int, int]:
    """First byte, and the byte behind the last, of the memory an array touches."""
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
    """Lends an array's addresses to NumPy, which solves for shared elements."""
    element = DTYPES[array.dtype]
    strides = tuple(stride * element.itemsize for stride in array.strides)
    addresses = Memory(array.pointer, array.shape, strides, array.dtype, None, True, None)
    return borrowed.on_host(addresses, element)
