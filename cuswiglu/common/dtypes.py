"""Element types: what is computed with."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
#: What is computed with, by name; the arrays of a call are of one.
DTYPES: dict[str, np.dtype[Any]] = {dtype.name: dtype for dtype in (BFLOAT16, FLOAT16)}
#: What may hold the bit pattern of BF16, if `asarray` is told that it does.
PATTERNS = ("uint16", "int16", "void16")
ELEMENTS: dict[str, np.dtype[Any]] = {**dict.fromkeys(PATTERNS, BFLOAT16), **DTYPES}
