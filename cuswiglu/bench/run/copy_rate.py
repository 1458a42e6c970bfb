"""Rate at which the GPU's memory copies: what bandwidth is measured by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays import cupy_module
from ...testing import timing

BYTES = 1 << 30
THREADS = 256
#: Vectors of 16 bytes that a thread has in flight: one kernel for each.
VECTORS = (4, 8)
#: Copies between two events, and how often these are timed.
REPLAYS, TAKES = 10, 8

_SOURCE = r"""
extern "C" __global__ void __launch_bounds__(THREADS) cuswiglu_bench_copy(
    const uint4* __restrict__ source, uint4* __restrict__ target) {
  size_t at = size_t(blockIdx.x) * THREADS * VECTORS + threadIdx.x;
  uint4 held[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) held[i] = __ldcs(source + at + i * THREADS);
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) __stcs(target + at + i * THREADS, held[i]);
}
"""


def measured() -> float:
    """Measure the TB/s of the fastest copy within the current device's memory, read plus written.

    Copies of 1 GiB by cudaMemcpyAsync, and by kernels with streaming loads and stores.

    Raises
    ------
    RuntimeError
        If one of them does not copy.
    """
    cupy = cupy_module()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        source = cupy.arange(BYTES // 4, dtype=np.uint32) * np.uint32(2654435761)  # as if random
        target = cupy.empty_like(source)
        copies = [_memcpy(source, target, stream)]
        copies += [_kernel(vectors, source, target) for vectors in VECTORS]
        for copy in copies:
            target.fill(0)
            copy()
            if not bool((source == target).all()):
                raise RuntimeError("a copy of the GPU's memory differs from what was copied")
        return fastest([timing.events_around(stream, _repeated(copy)) for copy in copies], BYTES)


def fastest(stopwatches: Sequence[timing.Stopwatch], copied: int) -> float:
    """Find the TB/s of the fastest of several copies, each of so many bytes and warmed up first."""
    for stopwatch in stopwatches:
        stopwatch(REPLAYS)
    best = min(stopwatch(REPLAYS) for _ in range(TAKES) for stopwatch in stopwatches)
    return round(2 * copied * REPLAYS / best / 1e6, 3)


def _repeated(copy: Callable[[], Any]) -> Callable[[int], None]:
    def launch(replays: int) -> None:
        for _ in range(replays):
            copy()

    return launch


def _memcpy(source: Any, target: Any, stream: Any) -> Callable[[], Any]:
    runtime = cupy_module().cuda.runtime
    direction = runtime.memcpyDeviceToDevice
    return lambda: runtime.memcpyAsync(
        target.data.ptr, source.data.ptr, source.nbytes, direction, stream.ptr
    )


def _kernel(vectors: int, source: Any, target: Any) -> Callable[[], Any]:
    """Copy arrays that its blocks divide, on CuPy's current stream."""
    defined = f"-DTHREADS={THREADS}", f"-DVECTORS={vectors}"
    kernel = cupy_module().RawKernel(_SOURCE, "cuswiglu_bench_copy", options=defined)
    blocks = source.nbytes // (16 * THREADS * vectors)
    return lambda: kernel((blocks,), (THREADS,), (source, target))
