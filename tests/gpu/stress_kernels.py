"""Foreign kernels: they know nothing of ours, and do not start early."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from cuswiglu.common.dtypes import BFLOAT16

NAN = 0x7FC0
SOURCE = r"""
extern "C" {

// Writes late; every third block three times as late as the first.
__global__ void write_late(unsigned short const* from, unsigned short* to, long long count,
                           long long cycles) {
  long long const begun = clock64(), until = cycles * (1 + blockIdx.x % 3);
  while (clock64() - begun < until) {
  }
  long long const step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

__global__ void fill(unsigned short* to, unsigned short bits, long long count) {
  long long const step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = bits;
  }
}

// Counts the elements that differ.
__global__ void differ(unsigned short const* found, unsigned short const* expected,
                       long long count, unsigned long long* wrong) {
  long long const step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    if (found[i] != expected[i]) atomicAdd(wrong, 1ull);
  }
}

}
"""


@functools.cache
def _kernels() -> dict[str, Any]:
    import cupy

    return {name: cupy.RawKernel(SOURCE, name) for name in ("write_late", "fill", "differ")}


def _bits(array: Any) -> Any:
    assert array.flags.c_contiguous, "kernels here walk whole arrays"
    return array.view(np.uint16)


def write_late(source: Any, target: Any, cycles: int, blocks: int) -> None:
    """Copy, on the current stream, after so many cycles of the GPU."""
    arguments = _bits(source), _bits(target), np.int64(target.size), np.int64(cycles)
    _kernels()["write_late"]((blocks,), (256,), arguments)


def fill(target: Any, bits: int) -> None:
    """Write one pattern everywhere."""
    arguments = _bits(target), np.uint16(bits), np.int64(target.size)
    _kernels()["fill"]((132,), (256,), arguments)


def poisoned(shape: tuple[int, ...]) -> Any:
    """A new array of BF16, full of NaN."""
    import cupy

    made = cupy.empty(shape, BFLOAT16)
    fill(made, NAN)
    return made


def told(names: Iterable[str], counts: Any) -> list[str]:
    """In words, of which names elements differed, of so many counts."""
    return [
        f"{name}: {int(count)} elements differ"
        for name, count in zip(names, counts.get(), strict=True)
        if count
    ]


def differ(found: Any, expected: Any, wrong: Any, blocks: int = 132) -> None:
    """Add to wrong[0], of uint64, how many elements differ."""
    assert found.shape == expected.shape
    arguments = _bits(found), _bits(expected), np.int64(found.size), wrong
    _kernels()["differ"]((blocks,), (256,), arguments)
