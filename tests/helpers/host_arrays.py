"""Arrays on the host for the tests: aligned as CuPy aligns, random, or full of NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
FP16 = np.dtype(np.float16)
ALIGNMENT = 512  # bytes; what CuPy's memory pool gives


def poisoned(*shape, offset=0, dtype=BF16):
    """An array full of NaN, `offset` elements behind an aligned address."""
    count = int(np.prod(shape))
    memory = np.empty(2 * (count + offset) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT + 2 * offset
    array = memory[start : start + 2 * count].view(dtype).reshape(shape)
    array[...] = np.nan
    return array


def full(values, *, dtype=BF16, **kwargs):
    """Aligned copy of `values`."""
    values = np.asarray(values)
    array = poisoned(*values.shape, dtype=dtype, **kwargs)
    array[...] = values.astype(dtype)
    return array


def draw(m, k, n, k_out=None, major="k", seed=0, dtype=BF16):
    """x, w_gate, w_up and, with `k_out`, w_down: N(0, 1), and N(0, 1) / sqrt(rows)."""
    rng = np.random.default_rng(seed)

    def weight(rows, columns):
        shape = (columns, rows) if major == "k" else (rows, columns)
        values = full(rng.standard_normal(shape) * rows**-0.5, dtype=dtype)
        return values.T if major == "k" else values

    arrays = full(rng.standard_normal((m, k)), dtype=dtype), weight(k, n), weight(k, n)
    return arrays if k_out is None else (*arrays, weight(n, k_out))


def bits(array):
    """16-bit numbers as integers, so that equality means the same bits."""
    return np.asarray(array).view(np.uint16)
