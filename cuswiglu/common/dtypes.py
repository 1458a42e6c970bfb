"""Element types: what is computed with, and what each library calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class ElementType:
    """A type of an array's elements.

    Attributes
    ----------
    name : str
        NumPy's name, by which arrays, problems and kernels' entries have it.
    bits : int
    dtype : numpy.dtype
    tma, cublas, xla : int
        CU_TENSOR_MAP_DATA_TYPE_* (cuda.h), CUDA_R_* (library_types.h), and XLA_FFI_DataType_*.
    dlpack : int
        DLDataTypeCode.
    cutlass : str
        The type in C++.
    """

    name: str
    bits: int
    dtype: np.dtype[Any]
    tma: int
    cublas: int
    xla: int
    dlpack: int
    cutlass: str


BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
FLOAT16: np.dtype[Any] = np.dtype(np.float16)
#: Element types that are computed with, by name.
ELEMENTS = {
    row.name: row
    for row in (
        ElementType(
            name="bfloat16",
            bits=16,
            dtype=BFLOAT16,
            tma=9,
            cublas=14,
            xla=16,
            dlpack=4,
            cutlass="cutlass::bfloat16_t",
        ),
        ElementType(
            name="float16",
            bits=16,
            dtype=FLOAT16,
            tma=6,
            cublas=2,
            xla=10,
            dlpack=2,
            cutlass="cutlass::half_t",
        ),
    )
}
DTYPES: dict[str, np.dtype[Any]] = {name: row.dtype for name, row in ELEMENTS.items()}
#: Dtypes that may hold the bit pattern of BF16, if `asarray` is told that it does.
PATTERNS = ("uint16", "int16", "void16")
