"""Prints the extra whose CUDA packages fit the driver here ("cuda12" or "cuda13"), or nothing."""

from __future__ import annotations

import ctypes


def cuda_extra(library: str = "libcuda.so.1") -> str:
    """Name the extra to install; empty where there is no driver, or one older than CUDA 12."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return ""
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) != 0 or version.value < 12000:
        return ""
    return "cuda13" if version.value >= 13000 else "cuda12"


if __name__ == "__main__":
    print(cuda_extra())
