"""Import of arrays: any supported library's as NumPy's or CuPy's, and as an `ArrayView`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..common.device import CPU, Device
from ..common.dtypes import BFLOAT16, DTYPES, PATTERNS
from . import allocate, dlpack, foreign, streams
from .allocate import is_cupy
from .array_view import ArrayView
from .dlpack import Memory, dtype_name
from .streams import on_stream


def view(name: str, array: Any, stream: Any = None) -> ArrayView:
    """View an array of any supported library; nothing is copied.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    array : array
        As in `asarray`.
    stream : optional
        Where the array will be used, as in `streams.current`; its producer makes it wait.

    Raises
    ------
    TypeError
        If it is no array, or of a dtype that is not in `DTYPES`.
    ValueError
        If its strides are no whole elements, or its library does not give it away.
    """
    array = import_array(name, array, stream)
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
    """Whether an array is NumPy's or CuPy's."""
    return isinstance(array, np.ndarray) or is_cupy(array)


def import_array(name: str, array: Any, stream: Any = None, *, patterns: bool = False) -> Any:
    """Make a NumPy or CuPy array over another library's; return anything else as it is.

    With `patterns`, 16-bit integers are taken for BF16. A read-only `out` is refused.
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
        return foreign.on_host(memory, _element(memory))
    if kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise TypeError(
            f"{name} must live on the CPU or on a CUDA device, got {type(array).__name__} with "
            f"DLPack device type {kind}: copy it there"
        )
    with on_stream(Device("cuda", index), stream) as handle:
        # 0 says nothing in DLPack, and 1 is the null stream.
        memory = _checked(name, array, dlpack.read(array, handle or 1), patterns)
        device = foreign.device_of(allocate.cupy_module(), memory)
        return foreign.on_cuda(allocate.cupy_module(), memory, _element(memory), device)


def _by_cuda_interface(name: str, array: Any, stream: Any, patterns: bool) -> Any:
    memory, producer = foreign.read_cuda_interface(array)
    memory, cupy = _checked(name, array, memory, patterns), allocate.cupy_module()
    device = foreign.device_of(cupy, memory)
    with on_stream(Device("cuda", device), stream):
        if producer is not None:
            streams.wait(cupy, device, producer)
        return foreign.on_cuda(cupy, memory, _element(memory), device)


def _element(memory: Memory) -> np.dtype[Any]:
    """Element type of the memory; bit patterns are BF16."""
    return DTYPES.get(memory.dtype, BFLOAT16)


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
