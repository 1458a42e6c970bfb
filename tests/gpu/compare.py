"""Comparison with FP64 on the GPU."""

from __future__ import annotations


def reference(cupy, x, gate, up):
    """SiLU(x gate) * (x up) in FP64."""
    x, gate, up = (array.astype(cupy.float64) for array in (x, gate, up))
    product = x @ gate
    return product / (1 + cupy.exp(-product)) * (x @ up)


def product(cupy, x, weight):
    """x weight in FP64."""
    return x.astype(cupy.float64) @ weight.astype(cupy.float64)


def assert_close(cupy, found, expected):
    """One BF16 rounding (2^-9 relative), and FP32 accumulation near zero."""
    found = found.astype(cupy.float64)
    assert bool(cupy.isfinite(found).all()), "an element was not written"
    scale = float(cupy.sqrt((expected**2).mean()))
    excess = cupy.abs(found - expected) - (2**-8 * cupy.abs(expected) + 1e-4 * scale)
    assert float(excess.max()) <= 0, f"off by {float(excess.max()):.3g} beyond the tolerance"


def assert_guard_intact(cupy, guard, m, n, pad=8):
    """Nothing was written around the output."""
    assert bool(cupy.isnan(guard[0].astype(cupy.float32)).all())
    assert bool(cupy.isnan(guard[m + 1 :].astype(cupy.float32)).all())
    assert bool(cupy.isnan(guard[:, :pad].astype(cupy.float32)).all())
    assert bool(cupy.isnan(guard[:, pad + n :].astype(cupy.float32)).all())
