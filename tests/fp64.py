"""The operation in FP64, and what may separate a BF16 result from it."""

from __future__ import annotations

import ml_dtypes
import numpy as np


def silu(x):
    return x / (1 + np.exp(-x))


def swiglu(x, gate, up):
    """SiLU(x gate) * (x up), nothing rounded."""
    x, gate, up = (array.astype(np.float64) for array in (x, gate, up))
    return silu(x @ gate) * (x @ up)


def matmul(x, weight):
    return x.astype(np.float64) @ weight.astype(np.float64)


def rounded(values):
    return values.astype(ml_dtypes.bfloat16)


def assert_close(found, expected):
    """Half a BF16 ulp (2^-8 relative at most), and FP32 accumulation near zero."""
    found = np.asarray(found).astype(np.float64)
    assert found.shape == expected.shape
    assert np.isfinite(found).all(), "an element was not written"
    scale = np.sqrt(np.mean(expected**2))
    excess = np.abs(found - expected) - (2**-8 * np.abs(expected) + 1e-5 * scale)
    assert excess.max() <= 0, f"off by {excess.max():.3g} beyond the tolerance"


def share_nearest(found, expected):
    """Share of elements that are the BF16 number nearest to the FP64 value."""
    return float(np.mean(np.asarray(found) == rounded(expected)))
