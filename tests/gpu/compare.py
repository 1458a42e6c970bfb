"""Comparison with FP64 on the GPU."""

from __future__ import annotations

import contextlib

from cuswiglu.problem import activations

#: So much of a result's scale FP32 sums of up to 4096 products may be off by.
NEAR_ZERO = 1e-4
#: The largest term of a sum of the down projection, in times the terms' RMS.
LARGEST_TERM = 50


def reference(cupy, x, gate, up, b_gate=None, b_up=None, activation="silu"):
    """SiLU(x gate) * (x up) in FP64, or with biases and another activation."""
    gates, ups = product(cupy, x, gate, b_gate), product(cupy, x, up, b_up)
    return activations.find(activation)(cupy, gates, ups)


def product(cupy, x, weight, bias=None):
    """x weight in FP64, plus a bias."""
    found = x.astype(cupy.float64) @ weight.astype(cupy.float64)
    return found if bias is None else found + bias.astype(cupy.float64)


def of_flips(n):
    """`near_zero` of an MLP's results, whose intermediate has N columns.

    A value of the intermediate that lies between two neighbours can round to either: its term of
    each of the token's sums is then off by up to 2^-8 of itself.
    """
    return 2**-8 * LARGEST_TERM / n**0.5


def assert_close(cupy, found, expected, near_zero=NEAR_ZERO):
    """Half an ulp, at most 2^-8 relative and of FP16 2^-11; near zero FP32 sums, by the scale."""
    half = 2**-11 if found.dtype == cupy.float16 else 2**-8
    found = found.astype(cupy.float64)
    assert bool(cupy.isfinite(found).all()), "an element was not written"
    scale = float(cupy.sqrt((expected**2).mean()))
    excess = cupy.abs(found - expected) - (half * cupy.abs(expected) + near_zero * scale)
    assert float(excess.max()) <= 0, f"off by {float(excess.max()):.3g} beyond the tolerance"


@contextlib.contextmanager
def told(case):
    """Failures say which case it is."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from error


def assert_guard_intact(cupy, guard, m, n, pad=8):
    """Nothing was written around the output."""
    assert bool(cupy.isnan(guard[0].astype(cupy.float32)).all())
    assert bool(cupy.isnan(guard[m + 1 :].astype(cupy.float32)).all())
    assert bool(cupy.isnan(guard[:, :pad].astype(cupy.float32)).all())
    assert bool(cupy.isnan(guard[:, pad + n :].astype(cupy.float32)).all())
