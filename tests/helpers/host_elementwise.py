"""CuPy's elementwise kernels without a GPU: their C, compiled for the host."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

import numpy as np

from tests.helpers.host_sources import compiled

SOURCE = """
#include <math.h>
#define __device__
#define __expf expf
inline float normcdff(float x) {{ return float(erfc(-x / sqrt(2.0)) / 2); }}
using T = float;  // NumPy rounds to y's type
{preamble}
extern "C" void compute(long count, float const* const* operands, T* results) {{
  for (long i = 0; i < count; ++i) {{
    {operands}
    T& y = results[i];
    {operation};
  }}
}}
"""


@functools.cache
def _library(source: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return compiled(Path(folder), "elementwise", source)


class ElementwiseKernel:
    """Stands in for `cupy.ElementwiseKernel`, of FP32 operands and one result."""

    def __init__(self, takes, gives, operation, name, preamble=""):
        assert gives == "T y"
        operands = [operand.split() for operand in takes.split(",")]
        assert {kind for kind, _ in operands} == {"float32"}
        loads = [
            f"[[maybe_unused]] float {operand} = operands[{index}][i];"
            for index, (_, operand) in enumerate(operands)
        ]
        self._compute = _library(
            SOURCE.format(preamble=preamble, operands=" ".join(loads), operation=operation)
        ).compute

    def __call__(self, *arguments):
        *operands, y = arguments
        filled = [
            np.ascontiguousarray(np.broadcast_to(operand, y.shape), np.float32)
            for operand in operands
        ]
        results = np.empty(y.shape, np.float32)
        pointers = (ctypes.c_void_p * len(filled))(*(array.ctypes.data for array in filled))
        self._compute(ctypes.c_long(y.size), pointers, ctypes.c_void_p(results.ctypes.data))
        with np.errstate(all="ignore"):
            y[...] = results.astype(y.dtype)
