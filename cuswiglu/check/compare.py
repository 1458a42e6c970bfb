"""How far a BF16 result is from FP64; for NumPy and CuPy arrays alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes

from ..testing.numerics import ordered

#: Elements are off if they differ by more than this share.
TOLERANCE = 0.01
#: Of the RMS of all elements: near zero, elements may differ by `TOLERANCE` of this.
FLOOR = 2**-8
#: Bins of the histogram: at most so many ulps, and above the one before; the last bin is beyond.
BINS = (0, 1, 2, 4, 8, 16, 64, 256)
_ELEMENTS = 1 << 24  # that are compared at once
_WEIGHT_BYTES = 256 << 20  # of FP64 weights that are held at once
_BEYOND = 1 << 20  # ulps that NaN counts as


@dataclass(frozen=True)
class Worst:
    """The element with the largest error, as a share of the expected value or of the floor.

    `gate` and `up` are its two sums in FP64.
    """

    row: int
    column: int
    found: float
    expected: float
    error: float
    gate: float
    up: float


@dataclass(frozen=True)
class Measured:
    """How far a result is from FP64.

    Attributes
    ----------
    off, off_floored : float
        Share of the elements that differ by more than 1%: of FP64, and of FP64 or `FLOOR` of the
        RMS, whichever is more. NaN is off.
    within_ulp : float
        Share at most one BF16 ulp from FP64 rounded once.
    ulps : tuple of int
        Elements in each of `BINS`, and beyond.
    worst : Worst
    """

    off: float
    off_floored: float
    within_ulp: float
    ulps: tuple[int, ...]
    worst: Worst


def reference(xp: Any, x: Any, gate: Any, up: Any) -> Any:
    """silu(x @ gate) * (x @ up) in FP64, (M, N); of the weights only blocks are held in FP64.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (M, K) array
    gate, up : (K, N) array
    """
    k, n = gate.shape
    x64, result = x.astype(xp.float64), xp.empty((len(x), n), xp.float64)
    step = max(1, _WEIGHT_BYTES // (8 * k))
    for first in range(0, n, step):
        block = slice(first, first + step)
        product = x64 @ gate[:, block].astype(xp.float64)
        silu = product / (1 + xp.exp(-product))
        result[:, block] = silu * (x64 @ up[:, block].astype(xp.float64))
    return result


def nearest(xp: Any, values: Any) -> Any:
    """The BF16 number nearest to each FP64 value, ties to even; rounded once, unlike `astype`."""
    # Of FP64's 52 bits of fraction BF16 has 7; its subnormals are multiples of 2^-133.
    dropped = 45
    bits = values.view(xp.uint64)
    half = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1)
    normal = ((bits + half) >> dropped << dropped).view(xp.float64)
    tiny = xp.abs(values) < 2**-126
    subnormal = xp.rint(xp.where(tiny, values, 0) * 2.0**133) * 2.0**-133
    return xp.where(tiny, subnormal, normal).astype(ml_dtypes.bfloat16)


def ulps(xp: Any, found: Any, rounded: Any) -> Any:
    """BF16 numbers between two BF16 arrays, element by element; NaN is beyond all of `BINS`."""
    apart = xp.abs(ordered(xp, found) - ordered(xp, rounded))
    return xp.where(xp.isnan(found.astype(xp.float32)), _BEYOND, apart)


def compare(xp: Any, found: Any, expected: Any, inputs: tuple[Any, Any, Any]) -> Measured:
    """Compare a result with FP64.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    found : (M, N) array
        BF16.
    expected : (M, N) array
        From `reference`.
    inputs : (x, gate, up)
        What it was computed from.
    """
    m, n = expected.shape
    floor = FLOOR * float(xp.sqrt(xp.mean(expected * expected)))
    off = off_floored = 0
    counts, worst = [0] * (len(BINS) + 1), (-1.0, 0)
    for first in range(0, m, max(1, _ELEMENTS // n)):
        block = slice(first, first + max(1, _ELEMENTS // n))
        here, wanted = found[block], expected[block]
        error, size = xp.abs(here.astype(xp.float64) - wanted), xp.abs(wanted)
        off += int((~(error <= TOLERANCE * size)).sum())
        share = error / xp.maximum(size, floor)
        share = xp.where(xp.isnan(share), xp.inf, share)
        off_floored += int((share > TOLERANCE).sum())
        where = int(share.argmax())
        worst = max(worst, (float(share.ravel()[where]), -(first * n + where)))
        apart, before = ulps(xp, here, nearest(xp, wanted)), -1
        for number, most in enumerate((*BINS, 1 << 30)):
            counts[number] += int(((apart > before) & (apart <= most)).sum())
            before = most
    error, place = worst
    return Measured(
        off=off / (m * n),
        off_floored=off_floored / (m * n),
        within_ulp=(counts[0] + counts[1]) / (m * n),
        ulps=tuple(counts),
        worst=_worst(xp, divmod(-place, n), error, found, expected, inputs),
    )


def _worst(
    xp: Any,
    place: tuple[int, int],
    error: float,
    found: Any,
    expected: Any,
    inputs: tuple[Any, Any, Any],
) -> Worst:
    row, column = place
    x, gate, up = (part.astype(xp.float64) for part in elements(inputs, row, column))
    return Worst(
        row,
        column,
        float(found[row, column]),
        float(expected[row, column]),
        error,
        float(x @ gate),
        float(x @ up),
    )


def elements(inputs: tuple[Any, Any, Any], row: int, column: int) -> tuple[Any, Any, Any]:
    """All that one element of a result is made of: a row of x, a column of gate and one of up."""
    x, gate, up = inputs
    return x[row], gate[:, column], up[:, column]
