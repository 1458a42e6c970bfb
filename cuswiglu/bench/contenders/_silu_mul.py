"""The unfused activation at its best: one memory-bound kernel, 16 bytes an access.

Part of the contender "GEMM + fused SiLU + GEMM"; nothing else uses it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import cupy_module

_THREADS = 128
_VECTOR = 8  # BF16 elements in 16 bytes

_SOURCE = r"""
__device__ float low(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ float silu_mul(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

__device__ unsigned pair(unsigned gate, unsigned up) {
  float first = silu_mul(low(gate), low(up)), second = silu_mul(high(gate), high(up));
  unsigned result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
}

// product: rows of 2 * columns vectors, gate then up; out: rows of columns vectors.
extern "C" __global__ void cuswiglu_bench_silu_mul(
    const uint4* __restrict__ product, uint4* __restrict__ out, int columns) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  size_t row = blockIdx.y;
  uint4 gate = product[row * 2 * columns + column];
  uint4 up = product[row * 2 * columns + columns + column];
  out[row * columns + column] = make_uint4(
      pair(gate.x, up.x), pair(gate.y, up.y), pair(gate.z, up.z), pair(gate.w, up.w));
}
"""


@functools.cache
def kernel() -> Callable[[Any, Any], None]:
    """Compile a function of a product (M, 2N), gate left of up, and the result (M, N).

    Both are contiguous BF16, N a multiple of 8; it launches on CuPy's current stream.
    """
    compiled = cupy_module().RawKernel(_SOURCE, "cuswiglu_bench_silu_mul")

    def launch(product: Any, out: Any) -> None:
        rows, columns = out.shape[0], out.shape[1] // _VECTOR
        grid = (-(-columns // _THREADS), rows)
        compiled(grid, (_THREADS,), (product, out, np.int32(columns)))

    return launch
