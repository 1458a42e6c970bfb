"""References in FP64, and how a result is compared with them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuswiglu.backends import reference
from cuswiglu.testing import numerics
from cuswiglu.testing.numerics import BINS, FLOOR, compare, nearest, ulps
from tests.helpers.fp64 import swiglu
from tests.helpers.host_arrays import BF16, draw

LARGEST = 2.0**127 * (2 - 2**-7)  # of BF16
EVERY = np.arange(0x7F80, dtype=np.uint16).view(BF16)  # finite and positive, ascending


def computed(m=16, k=40, n=24):
    inputs = draw(m, k, n)
    out = np.empty((m, n), BF16)
    reference.swiglu(*inputs, out)
    return inputs, out, numerics.swiglu_reference(np, *inputs)


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
    monkeypatch.setattr(numerics, "_WEIGHT_BYTES", 8 * 40 * 7)  # 7 columns at once
    np.testing.assert_allclose(numerics.swiglu_reference(np, *inputs), whole, rtol=1e-13)


def test_the_right_result_has_no_element_off():
    _, out, expected = computed()
    found = compare(np, nearest(np, expected), expected)
    assert (found.off, found.off_floored, found.within_ulp) == (0, 0, 1)
    assert found.ulps == (16 * 24, 0, 0, 0, 0, 0, 0, 0, 0)
    assert 0 < found.worst.error <= 2**-8
    assert compare(np, out, expected).within_ulp == 1


@pytest.mark.parametrize("elements", [1 << 24, 50])
def test_wrong_elements_are_counted_and_the_worst_is_found(monkeypatch, elements):
    monkeypatch.setattr(numerics, "_ELEMENTS", elements)  # 50: two rows at once
    _, _, expected = computed()
    result = nearest(np, expected)
    result[3, 5] = BF16.type(expected[3, 5] * 1.5)
    result[10, 2] = BF16.type(expected[10, 2] * 3)
    found = compare(np, result, expected)
    assert found.off * expected.size == pytest.approx(2)
    assert found.within_ulp * expected.size == pytest.approx(expected.size - 2)
    assert sum(found.ulps) == expected.size
    worst = found.worst
    assert (worst.row, worst.column) == (10, 2)
    assert worst.found == float(result[10, 2])
    assert worst.expected == expected[10, 2]


@pytest.mark.parametrize("element", [np.nan, np.inf])
def test_what_is_not_finite_is_off_and_the_worst(element):
    _, out, expected = computed()
    out[4, 4] = element
    found = compare(np, out, expected)
    assert found.off * expected.size == pytest.approx(1)
    assert found.off_floored == found.off
    assert found.ulps[-1] == 1
    assert (found.worst.row, found.worst.column, found.worst.error) == (4, 4, np.inf)


def test_near_zero_the_floor_is_what_counts():
    _, _, expected = computed()
    rms = float(np.sqrt(np.mean(expected**2)))
    expected[0, 0] = 0.1 * FLOOR * rms
    result = nearest(np, expected)
    result[0, 0] = BF16.type(0.105 * FLOOR * rms)  # 5% of itself, 0.5% of the floor
    found = compare(np, result, expected)
    assert found.off * expected.size == pytest.approx(1)
    assert found.off_floored == 0
    result[0, 0] = BF16.type(0.115 * FLOOR * rms)
    assert compare(np, result, expected).off_floored == found.off


def test_elements_off_by_more_than_one_percent_are_counted():
    found = np.array([[1 + 2**-7, -2 - 2**-5, np.nan, 0.5]]).astype(BF16)
    accuracy = compare(np, found, np.array([[1.0, -2.0, 4.0, 0.5]]))
    assert accuracy.off == 0.5
    assert np.isnan(accuracy.relative_error)


@pytest.mark.parametrize("elements", [1 << 24, 50])
def test_the_relative_error_is_of_the_norms(monkeypatch, elements):
    monkeypatch.setattr(numerics, "_ELEMENTS", elements)
    _, out, _ = computed()
    accuracy = compare(np, out, out.astype(np.float64) / 1.005)
    assert (accuracy.relative_error, accuracy.off) == (pytest.approx(0.005), 0.0)


def test_leading_dimensions_are_rows():
    _, out, expected = computed()
    assert compare(np, out.reshape(2, 8, 24), expected.reshape(2, 8, 24)) == compare(
        np, out, expected
    )


def test_fp16_is_compared_in_ulps_of_its_own():
    values = np.array([[1 + 2**-12, 3.0]])
    found = nearest(np, values, np.float16)
    assert found.dtype == np.float16
    found[0, 1] = np.nextafter(np.float16(3), np.float16(4))
    assert compare(np, found, values).ulps[:2] == (1, 1)
