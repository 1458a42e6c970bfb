"""How a result is compared with FP64 in `cuswiglu check`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuswiglu.backends import reference
from cuswiglu.check import compare
from cuswiglu.check.compare import BINS, FLOOR, nearest, ulps
from tests.helpers.fp64 import swiglu
from tests.helpers.host_arrays import BF16, draw

LARGEST = 2.0**127 * (2 - 2**-7)  # of BF16
EVERY = np.arange(0x7F80, dtype=np.uint16).view(BF16)  # finite and positive, ascending


def computed(m=16, k=40, n=24):
    inputs = draw(m, k, n)
    out = np.empty((m, n), BF16)
    reference.swiglu(*inputs, out)
    return inputs, out, compare.reference(np, *inputs)


# Rounding


@given(st.floats(-LARGEST, LARGEST))
@example(1 + 2**-8 + 2**-40)  # to FP32 and then to BF16 gives 1
@example(2.0**-133 * 1.5)
@example(2.0**-134)
@example(2.0**-126 * (1 - 2**-9))
@example(-0.0)
def test_a_value_is_rounded_once_to_the_nearest_and_ties_to_even(value):
    found = nearest(np, np.array([value]))[0]
    assert np.signbit(found) == np.signbit(value)
    place = int(np.searchsorted(EVERY.astype(np.float64), abs(value)))
    beside = range(max(place - 1, 0), min(place + 1, len(EVERY) - 1) + 1)
    exact = {index: abs(Fraction(float(EVERY[index])) - Fraction(abs(value))) for index in beside}
    closest = [index for index in beside if exact[index] == min(exact.values())]
    expected = closest[0] if len(closest) == 1 else next(i for i in closest if i % 2 == 0)
    assert abs(found) == EVERY[expected]


def test_what_is_beyond_bf16_is_rounded_to_infinity():
    values = np.array([LARGEST * (1 + 2**-10), 2.0**128, np.inf, -np.inf, 1e300])
    with np.errstate(over="ignore"):
        found = nearest(np, values).astype(np.float64)
    assert found.tolist() == [LARGEST, np.inf, np.inf, -np.inf, np.inf]


def test_ulps_count_the_numbers_between():
    one = np.float32(1)
    found = np.array([one, -0.0, 2.0**-133, -(2.0**-133), np.inf, np.nan]).astype(BF16)
    other = np.array([one + 2**-6, 0.0, -(2.0**-133), 2.0**-132, LARGEST, np.nan]).astype(BF16)
    assert ulps(np, found, other)[:5].tolist() == [2, 0, 2, 3, 1]
    assert ulps(np, found, other)[5] > BINS[-1]


# Comparison


def test_the_reference_is_fp64_however_it_is_cut(monkeypatch):
    inputs, _, whole = computed()
    np.testing.assert_allclose(whole, swiglu(*inputs), rtol=1e-13)
    monkeypatch.setattr(compare, "_WEIGHT_BYTES", 8 * 40 * 7)  # 7 columns at once
    np.testing.assert_allclose(compare.reference(np, *inputs), whole, rtol=1e-13)


def test_the_right_result_has_no_element_off():
    inputs, out, expected = computed()
    found = compare.compare(np, nearest(np, expected), expected, inputs)
    assert (found.off, found.off_floored, found.within_ulp) == (0, 0, 1)
    assert found.ulps == (16 * 24, 0, 0, 0, 0, 0, 0, 0, 0)
    assert 0 < found.worst.error <= 2**-8
    assert compare.compare(np, out, expected, inputs).within_ulp == 1


@pytest.mark.parametrize("elements", [1 << 24, 50])
def test_wrong_elements_are_counted_and_the_worst_is_found(monkeypatch, elements):
    monkeypatch.setattr(compare, "_ELEMENTS", elements)  # 50: two rows at once
    (x, gate, up), _, expected = computed()
    result = nearest(np, expected)
    result[3, 5] = BF16.type(expected[3, 5] * 1.5)
    result[10, 2] = BF16.type(expected[10, 2] * 3)
    found = compare.compare(np, result, expected, (x, gate, up))
    assert found.off * expected.size == pytest.approx(2)
    assert found.within_ulp * expected.size == pytest.approx(expected.size - 2)
    assert sum(found.ulps) == expected.size
    worst = found.worst
    assert (worst.row, worst.column) == (10, 2)
    assert worst.found == float(result[10, 2])
    assert worst.expected == expected[10, 2]
    assert worst.gate == pytest.approx(float(x[10].astype(float) @ gate[:, 2].astype(float)))
    assert worst.gate / (1 + np.exp(-worst.gate)) * worst.up == pytest.approx(worst.expected)


@pytest.mark.parametrize("element", [np.nan, np.inf])
def test_what_is_not_finite_is_off_and_the_worst(element):
    inputs, out, expected = computed()
    out[4, 4] = element
    found = compare.compare(np, out, expected, inputs)
    assert found.off * expected.size == pytest.approx(1)
    assert found.off_floored == found.off
    assert found.ulps[-1] == 1
    assert (found.worst.row, found.worst.column, found.worst.error) == (4, 4, np.inf)


def test_near_zero_the_floor_is_what_counts():
    inputs, _, expected = computed()
    rms = float(np.sqrt(np.mean(expected**2)))
    expected[0, 0] = 0.1 * FLOOR * rms
    result = nearest(np, expected)
    result[0, 0] = BF16.type(0.105 * FLOOR * rms)  # 5% of itself, 0.5% of the floor
    found = compare.compare(np, result, expected, inputs)
    assert found.off * expected.size == pytest.approx(1)
    assert found.off_floored == 0
    result[0, 0] = BF16.type(0.115 * FLOOR * rms)
    assert compare.compare(np, result, expected, inputs).off_floored == found.off
