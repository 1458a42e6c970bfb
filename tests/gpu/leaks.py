"""What a process and the GPU hold, and whether it grows."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

MIB = 1 << 20
#: More than this from the first samples to the last is a leak (bytes).
ALLOWED = MIB
ENDS = 3  # samples at either end


def resident_bytes(statm: str = "/proc/self/statm") -> int:
    """Of this process, in memory."""
    pages = int(pathlib.Path(statm).read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def held(cupy: Any) -> tuple[int, int]:
    """Bytes of the host and of the GPU that are in use, once all that can be given back is."""
    gc.collect()
    cupy.cuda.runtime.deviceSynchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    with contextlib.suppress(AttributeError, OSError):  # of glibc alone
        ctypes.CDLL(None).malloc_trim(0)
    free, total = cupy.cuda.runtime.memGetInfo()
    return resident_bytes(), total - free


def growth(samples: Sequence[int]) -> int:
    """Bytes from the first samples to the last, but for what comes and goes.

    A single sample may be high, for a moment: the least of the last ones counts.
    """
    if len(samples) < 2 * ENDS:
        raise ValueError(f"growth needs {2 * ENDS} samples, got {len(samples)}")
    return min(samples[-ENDS:]) - int(statistics.median(samples[:ENDS]))


def leaks(name: str, samples: Sequence[int]) -> list[str]:
    """What has grown by more than is allowed, in words."""
    found = growth(samples)
    if found <= ALLOWED:
        return []
    shown = ", ".join(f"{sample / MIB:.2f}" for sample in samples)
    return [f"{name} grew by {found / MIB:.2f} MiB: {shown}"]
