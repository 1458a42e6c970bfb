"""Signatures: what the arrays of a call have in common with those of others like it.

Two CuPy arrays have one signature if they differ in their address alone, and that by a multiple of
16 bytes. What a call checks and plans depends on signatures, but for whether `out` overlaps an
input, which depends on the addresses.
"""

from __future__ import annotations

import sys
from typing import Any

from ..common.dtypes import BFLOAT16, DTYPES
from ..problem import TMA_ALIGNMENT, PackedWeights
from ..problem.activations import ClampedSwiGLU

#: Shape, strides in bytes (None if contiguous), device, address modulo 16, and the element type's
#: name, which BF16 leaves out.
ArraySignature = (
    tuple[tuple[int, ...], tuple[int, ...] | None, int, int]
    | tuple[tuple[int, ...], tuple[int, ...] | None, int, int, str]
)
#: The variant, the activation, and the arrays' signatures; or those of x and out alone where all
#: else is the same.
CallSignature = tuple[Any, ...]

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ndarray: Any = None  # CuPy's, once an array of it has been met


def array_signature(array: Any) -> ArraySignature | None:
    """Take the signature of a CuPy array of a type that is computed; None of anything else."""
    global _ndarray
    if type(array) is not _ndarray:
        cupy = sys.modules.get("cupy")
        if cupy is None or type(array) is not cupy.ndarray:
            return None
        _ndarray = cupy.ndarray
    dtype = array.dtype
    memory = array.data
    try:  # takes less time than to ask for strides, or for flags
        strides = None if array._c_contiguous else array.strides
    except AttributeError:  # another CuPy
        strides = array.strides
    # The first is quick, and nearly always so.
    if dtype is BFLOAT16 or dtype == BFLOAT16:
        return array.shape, strides, memory.device_id, memory.ptr % TMA_ALIGNMENT
    name = _NAMES.get(dtype)
    if name is None:
        return None
    return array.shape, strides, memory.device_id, memory.ptr % TMA_ALIGNMENT, name


def call_signature(
    variant: str, activation: str | ClampedSwiGLU, given: tuple[Any, ...]
) -> CallSignature | None:
    """Take the signature of a call with these arguments.

    Parameters
    ----------
    variant : str
    activation : str or ClampedSwiGLU
    given : tuple of array, PackedWeights or None

    Returns
    -------
    tuple or None
        None if an argument is no CuPy array of a dtype that is computed.
    """
    if type(variant) is not str or not (
        type(activation) is str or type(activation) is ClampedSwiGLU
    ):
        return None
    parts: list[Any] = [variant, activation]
    for array in given:
        part: Any = None if array is None else array_signature(array)
        if part is None and array is not None:
            held = array_signature(array.array) if type(array) is PackedWeights else None
            if held is None:
                return None
            part = array.granularity, held
        parts.append(part)
    return tuple(parts)
