"""NaN, infinities, signed zeros, subnormals, large gates, overflow: inputs, and what is defined.

Defined is what follows from FP32 sums, x / (1 + exp(-x)) and a product in FP32, and one rounding:

- NaN in a row of x or in a column of a weight makes the elements NaN that it is summed into, and
  no others; so does infinity times zero, infinity minus infinity, and SiLU of -infinity.
- A gate above 88 passes up through, times the gate; one below -104 gives a zero.
- What is beyond BF16 becomes an infinity of its sign.

Not defined: the sign of a zero. The kernels flush FP32 subnormals, and take approximate
exponentials and reciprocals: SiLU may be off by `FLUSHED`, a result by one BF16 ulp and by BF16's
smallest normal number.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
SMALLEST_NORMAL = 2.0**-126
LARGEST = 2.0**127 * (2 - 2**-7)  # of BF16
#: SiLU where exp(-x) is above 2^126: its reciprocal is subnormal.
FLUSHED = 2.0**-119
#: Of a sum of absolute values: what FP32 sums are off by, at most.
SUMS = 2.0**-20
ROWS, PAIRS = 16, 24  # that specials take


def inputs(m, n, k, seed=0):
    """x, gate and up, (M, K), (K, N) and (K, N), with specials in the first rows and columns."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, k))
    gate, up = (rng.standard_normal((k, n)) * k**-0.5 for _ in range(2))

    def one(value, place=0):
        """A vector of zeros but for one value."""
        vector = np.zeros(k)
        vector[place % k] = value
        return vector

    rows = [
        *(_with(x[0], np.nan, k - 1), _with(x[0], np.inf, 0), _with(x[0], -np.inf, k // 2)),
        *(np.zeros(k), np.full(k, -0.0)),
        *(one(1e4), one(-1e4), one(90.0), one(-95.0), one(-150.0)),
        *(one(1e30), one(-1e30), one(2.0**-133), one(3 * 2.0**-133)),
        *(np.full(k, 2.0**-130), one(np.inf)),
    ]
    columns = [
        *(_with(gate[:, 0], np.nan, 0), _with(gate[:, 0], np.inf, k - 1)),
        *(one(1.0), one(-1.0), one(1e30), one(2.0**-133), one(2.0**30)),
        *(np.zeros(k), np.full(k, -0.0), one(2.0**127)),
    ]
    for row, values in enumerate(rows[:m]):
        x[row] = values
    # Pairs of columns: a special gate with an ordinary up, an ordinary gate with a special up,
    # and special ones of both.
    pairs = [(one_of, up[:, 0]) for one_of in columns]
    pairs += [(np.abs(gate[:, 0]), one_of) for one_of in columns]
    pairs += [(columns[a], columns[b]) for a, b in ((2, 4), (3, 4), (2, 6), (9, 9))]
    assert len(pairs) == PAIRS
    for column, (special_gate, special_up) in enumerate(pairs[:n]):
        gate[:, column], up[:, column] = special_gate, special_up
    return tuple(array.astype(BF16) for array in (x, gate, up))


def _with(vector, value, place):
    copy = vector.copy()
    copy[place] = value
    return copy


def _sums(x, weight):
    """FP32 sums, by way of FP64, and how far off they may be."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    with np.errstate(all="ignore"):
        return (x @ weight).astype(np.float32), SUMS * (np.abs(x) @ np.abs(weight))


def assert_product(found, x, weight):
    """x @ weight, rounded once, where it is defined."""
    expected, room = _sums(x, weight)
    _assert_same(found, expected.astype(np.float64), room, np.abs(expected))


def assert_swiglu(found, x, gate, up, *, sums_flushed=False):
    """silu(x @ gate) * (x @ up), rounded once, where it is defined.

    `sums_flushed`: as by cuBLAS, products and partial sums that are subnormal may become zero.
    """
    (gates, gate_room), (ups, up_room) = _sums(x, gate), _sums(x, up)
    with np.errstate(all="ignore"):
        silu = gates / (1 + np.exp(-gates))
        expected = (silu * ups).astype(np.float64)
        room = (1.1 * gate_room + FLUSHED) * np.abs(ups) + np.abs(silu) * up_room
    # Times infinity, what is flushed and what is not differ by everything.
    flushed = (gates < -87) & (gates > -105) & np.isinf(ups)
    if sums_flushed:
        lost = x.shape[1] * SMALLEST_NORMAL
        flushed |= (np.abs(gates) < lost) & np.isinf(ups)
        flushed |= (np.abs(ups) < lost) & np.isinf(gates)
        room = room + lost * (np.abs(ups) + np.abs(silu))
    largest = np.maximum(np.maximum(np.abs(gates), np.abs(ups)), np.abs(expected))
    _assert_same(
        np.where(flushed, np.float32(0), found.astype(np.float32)),
        np.where(flushed, 0, expected),
        np.where(flushed, 0, room),
        largest,
    )


def _assert_same(found, expected, room, largest):
    found = np.asarray(found).astype(np.float64)
    assert found.shape == expected.shape
    largest = largest.astype(np.float64)
    near_overflow = (largest > 0.98 * LARGEST) & (largest < 1.02 * LARGEST)
    with np.errstate(all="ignore"):
        beyond = np.abs(expected) > LARGEST
        expected = np.where(beyond, np.sign(expected) * np.inf, expected)
        off = np.abs(found - expected) - (2**-7 * np.abs(expected) + room + SMALLEST_NORMAL)
    infinite = np.isinf(expected)
    right = np.where(
        np.isnan(expected),
        np.isnan(found),
        np.where(infinite, found == expected, off <= 0),
    )
    wrong = np.argwhere(~(right | near_overflow))
    told = [f"{found[at]} for {expected[at]} at {list(at)}" for at in map(tuple, wrong[:8])]
    assert not len(wrong), f"{len(wrong)} elements: {'; '.join(told)}"
