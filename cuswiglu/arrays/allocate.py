"""Import of CuPy on first need, and allocation of NumPy and CuPy arrays."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.device import Device
from ..common.dtypes import BFLOAT16, DTYPES

CUPY_MAJOR = 14  # the first with bfloat16


def is_cupy(array: Any) -> bool:
    """Whether `array` is a CuPy array; never imports CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


@functools.cache
def cupy_module() -> Any:
    """Import CuPy, when the first device array is met, and return the module.

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
    """Allocate a row-major array, from CuPy's memory pool on a CUDA device."""
    element = DTYPES[dtype]
    if device.kind == "cpu":
        return np.empty(shape, element)
    cupy = cupy_module()
    with cupy.cuda.Device(device.index):
        return cupy.empty(shape, element)


def maker(dtype: str) -> Callable[..., Any]:
    """Return a fast allocator of C-contiguous CuPy arrays on the current CUDA device.

    It takes a shape, and optionally a `cupy.cuda.MemoryPointer` to place the array at. Where this
    CuPy lets it, it skips `cupy.ndarray`'s constructor for the initialiser behind it, which halves
    its host time; that matters for decode.
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
