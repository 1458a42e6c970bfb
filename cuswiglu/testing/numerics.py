"""The operation in FP64, and how far a result is from it; for NumPy and CuPy arrays alike.

References and comparisons of all rooms: `cuswiglu demo`, `bench` and `check`, notebooks and tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..problem.activations import SILU, Activation

#: Largest relative error of a right result of ours against `mlp_reference`: one rounding to BF16 is
#: 2^-9 of an element at most, and the intermediate's can go the other way than FP64's.
MAX_RELATIVE_ERROR = 2**-8
#: Largest relative error of anybody's right result against plain FP64: an unfused contender rounds
#: after each operation, a stack after each layer. More is wrong.
MAX_UNFUSED_ERROR = 2**-6
#: An element is off if it differs by more than this share of the expected value.
TOLERANCE = 0.01
#: Share of the RMS of all elements: near zero, elements may differ by `TOLERANCE` of this.
FLOOR = 2**-8
#: Bins of the histogram: at most so many ulps, and above the one before; the last bin is beyond.
BINS = (0, 1, 2, 4, 8, 16, 64, 256)
_ELEMENTS = 1 << 24  # that are compared at once
_WEIGHT_BYTES = 256 << 20  # of FP64 weights that are held at once
_BEYOND = 1 << 20  # ulps that NaN counts as


@dataclass(frozen=True)
class Worst:
    """Element with the largest error, as a share of the expected value or of the floor.

    `gate` and `up` are its two sums in FP64, NaN where the comparison does not know them.
    """

    row: int
    column: int
    found: float
    expected: float
    error: float
    gate: float = math.nan
    up: float = math.nan


@dataclass(frozen=True)
class Accuracy:
    """Distance of a result from FP64.

    Attributes
    ----------
    off, off_floored : float
        Share of the elements that differ by more than 1%: of FP64, and of FP64 or `FLOOR` of the
        RMS, whichever is more. NaN is off.
    within_ulp : float
        Share at most one ulp of the result's dtype from FP64 rounded once.
    ulps : tuple of int
        Elements in each of `BINS`, and beyond.
    worst : Worst
    relative_error : float
        ||found - expected|| / ||expected||; NaN if an element is, and in reports of before it was
        kept.
    """

    off: float
    off_floored: float
    within_ulp: float
    ulps: tuple[int, ...]
    worst: Worst
    relative_error: float = math.nan


def swiglu_reference(
    xp: Any,
    x: Any,
    gate: Any,
    up: Any,
    *,
    activation: Activation = SILU,
    biases: Sequence[Any] = (),
) -> Any:
    """Compute activation(x @ gate + b_gate, x @ up + b_up) in FP64, nothing rounded.

    Only blocks of the weights are held in FP64.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (M, K); gate, up : (K, N)
    activation : Activation
    biases : b_gate and b_up, or none
        (N,), or None.

    Returns
    -------
    (M, N) array of float64
    """
    b_gate, b_up = biases or (None, None)
    return activation(xp, product(xp, x, gate, b_gate), product(xp, x, up, b_up))


def mlp_reference(
    xp: Any,
    x: Any,
    gate: Any,
    up: Any,
    down: Any,
    *,
    activation: Activation = SILU,
    biases: Sequence[Any] = (),
) -> Any:
    """Compute the MLP in FP64, its intermediate rounded to x's dtype as the contract says.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    x : (M, K); gate, up : (K, N); down : (N, K_out)
    activation : Activation
    biases : b_gate, b_up, b_down, or none
        (N,), (N,) and (K_out,), or None.

    Returns
    -------
    (M, K_out) array of float64
    """
    *first, b_down = biases or (None, None, None)
    hidden = swiglu_reference(xp, x, gate, up, activation=activation, biases=first)
    return product(xp, hidden.astype(x.dtype), down, b_down)


def product(xp: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    """Compute x @ weight + bias in FP64; only blocks of the weight are held in FP64."""
    k, n = weight.shape
    x64, result = x.astype(xp.float64), xp.empty((len(x), n), xp.float64)
    step = max(1, _WEIGHT_BYTES // (8 * k))
    for first in range(0, n, step):
        block = slice(first, first + step)
        result[:, block] = x64 @ weight[:, block].astype(xp.float64)
    return result if bias is None else result + bias.astype(xp.float64)


def ordered(xp: Any, numbers: Any) -> Any:
    """Map 16-bit patterns to integers in the order of the numbers: neighbours differ by one."""
    bits = numbers.view(xp.int16).astype(xp.int32)
    return xp.where(bits < 0, -(bits & 0x7FFF), bits)


def nearest(xp: Any, values: Any, dtype: Any = ml_dtypes.bfloat16) -> Any:
    """Round FP64 values once, ties to even; `astype` goes to BF16 by way of FP32."""
    if dtype != ml_dtypes.bfloat16:
        return values.astype(dtype)
    # Of FP64's 52 bits of fraction BF16 has 7; its subnormals are multiples of 2^-133.
    dropped = 45
    bits = values.view(xp.uint64)
    half = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1)
    normal = ((bits + half) >> dropped << dropped).view(xp.float64)
    tiny = xp.abs(values) < 2**-126
    subnormal = xp.rint(xp.where(tiny, values, 0) * 2.0**133) * 2.0**-133
    return xp.where(tiny, subnormal, normal).astype(dtype)


def ulps(xp: Any, found: Any, rounded: Any) -> Any:
    """Count the numbers between two arrays, element by element; NaN is beyond all of `BINS`."""
    apart = xp.abs(ordered(xp, found) - ordered(xp, rounded))
    return xp.where(xp.isnan(found.astype(xp.float32)), _BEYOND, apart)


def compare(xp: Any, found: Any, expected: Any) -> Accuracy:
    """Compare a result with FP64, a block of rows at a time.

    Parameters
    ----------
    xp : module
        numpy or cupy, as the arrays are.
    found : array of BF16 or FP16
        (..., N).
    expected : array of float64
        Of the same shape.
    """
    found, expected = (array.reshape(-1, array.shape[-1]) for array in (found, expected))
    m, n = expected.shape
    floor = FLOOR * float(xp.sqrt(xp.mean(expected * expected)))
    off = off_floored = 0
    squared_error = squared = 0.0
    counts, worst = [0] * (len(BINS) + 1), (-1.0, 0)
    for block in _blocks(m, n):
        here, wanted = found[block], expected[block]
        error, size = xp.abs(here.astype(xp.float64) - wanted), xp.abs(wanted)
        squared_error += float((error * error).sum())
        squared += float((size * size).sum())
        off += int((~(error <= TOLERANCE * size)).sum())
        share = error / xp.maximum(size, floor)
        share = xp.where(xp.isnan(share), xp.inf, share)
        off_floored += int((share > TOLERANCE).sum())
        where = int(share.argmax())
        worst = max(worst, (float(share.ravel()[where]), -(block.start * n + where)))
        apart, before = ulps(xp, here, nearest(xp, wanted, here.dtype)), -1
        for number, most in enumerate((*BINS, 1 << 30)):
            counts[number] += int(((apart > before) & (apart <= most)).sum())
            before = most
    row, column = divmod(-worst[1], n)
    return Accuracy(
        off=off / (m * n),
        off_floored=off_floored / (m * n),
        within_ulp=(counts[0] + counts[1]) / (m * n),
        ulps=tuple(counts),
        worst=Worst(row, column, float(found[row, column]), float(expected[row, column]), worst[0]),
        relative_error=float(np.sqrt(squared_error) / np.sqrt(squared)),
    )


def _blocks(m: int, n: int) -> Iterator[slice]:
    """Rows that are compared at once."""
    step = max(1, _ELEMENTS // n)
    return (slice(first, first + step) for first in range(0, m, step))
