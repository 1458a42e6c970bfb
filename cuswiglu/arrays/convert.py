"""Conversion without copies: `asarray`, and results as arrays of x's library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.device import CPU, Device
from ..common.dtypes import BFLOAT16, PATTERNS
from . import allocate, dlpack
from .allocate import is_cupy
from .dlpack import dtype_name
from .imports import import_array, is_own, view
from .streams import on_stream


def asarray(x: Any, dtype: Any = None, stream: Any = None) -> Any:
    """View an array of any supported library as NumPy's or CuPy's; nothing is copied.

    Parameters
    ----------
    x : array
        NumPy's or CuPy's, or of any library with ``__dlpack__`` (JAX, torch, cuda.core) or, on a
        CUDA device, ``__cuda_array_interface__`` (versions 2 and 3).
    dtype : "bfloat16", optional
        Take 16-bit integers (uint16, int16, void16) for the bit pattern of BF16.
    stream : cupy.cuda.Stream, int, or object with ``__cuda_stream__``, optional
        Where the array will be used, on a CUDA device; the current CuPy stream by default. The
        stream waits for the work of x's library on it; the host does not.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        BF16 or FP16, with x's shape and strides. Read-only memory stays so in NumPy; CuPy has no
        such mark: do not write into it. It holds x; on a CUDA device x is given back by a later
        call, once the stream is done with it.

    Raises
    ------
    TypeError
        If x is no array, lives on a device that is neither the CPU nor CUDA, or has another dtype.
    ValueError
        If x's library refuses to give it away.

    Examples
    --------
    >>> import numpy as np
    >>> import cuswiglu
    >>> patterns = np.array([0x3F80, 0x4000], np.uint16)
    >>> seen = cuswiglu.asarray(patterns, dtype="bfloat16")
    >>> seen.tolist(), seen.base is patterns
    ([1.0, 2.0], True)
    """
    if dtype is not None and not _is_bfloat16(dtype):
        raise TypeError(f"dtype must be 'bfloat16' or None, got {dtype!r}: nothing is converted")
    array = import_array("x", x, stream, patterns=dtype is not None)
    if dtype is not None and is_own(array) and dtype_name(array.dtype) in PATTERNS:
        array = _reinterpreted(array, BFLOAT16)
    seen = view("x", array)
    if dtype is not None and seen.dtype != BFLOAT16.name:
        raise TypeError(
            f"x must have dtype bfloat16, as asked for, got {seen.dtype}: leave dtype out"
        )
    with on_stream(seen.device, stream):  # the CPU has no streams
        return array


def _is_bfloat16(dtype: Any) -> bool:
    try:
        return bool(np.dtype(dtype) == BFLOAT16)
    except TypeError:
        return False


def _reinterpreted(array: Any, dtype: np.dtype[Any]) -> Any:
    """Reinterpret an array's bits as another type of the same size."""
    if isinstance(array, np.ndarray):
        return array.view(dtype)
    ndarray = allocate.cupy_module().ndarray
    return ndarray(array.shape, dtype, array.data, strides=array.strides)


def exporter_of(like: Any, x: Any) -> Callable[[Any], Any] | None:
    """Find `from_dlpack` of x's library; None if results stay NumPy's or CuPy's.

    Raises
    ------
    ValueError
        If `like` is neither None nor "input".
    TypeError
        If x's library has no ``from_dlpack``.
    """
    if like is None:
        return None
    if not (isinstance(like, str) and like == "input"):
        raise ValueError(f"like must be None or 'input', got {like!r}")
    if is_own(x) or not (hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")):
        return None
    if hasattr(x, "__array_namespace__"):
        libraries = [x.__array_namespace__()]
    else:
        tops = (base.__module__.partition(".")[0] for base in type(x).__mro__)
        libraries = [sys.modules.get(top) for top in tops]
    for library in libraries:
        if hasattr(library, "from_dlpack"):
            return library.from_dlpack  # type: ignore[no-any-return]
    raise TypeError(
        f"like='input' needs an x whose library has from_dlpack (NumPy, CuPy, JAX, torch), got "
        f"{type(x).__name__}: leave like out, for a NumPy or CuPy array"
    )


def export(result: Any, from_dlpack: Callable[[Any], Any], stream: Any) -> Any:
    """Convert a result with `from_dlpack`, which makes its library's stream wait for `stream`."""
    device = Device("cuda", result.device.id) if is_cupy(result) else CPU
    with on_stream(device, stream):
        if result.dtype != BFLOAT16:
            return from_dlpack(result)
        return from_dlpack(dlpack.Bfloat16(_reinterpreted(result, np.dtype(np.uint16))))
