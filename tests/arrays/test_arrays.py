"""The room that knows NumPy and CuPy: views, (..., C) as a matrix, shared elements."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cuswiglu.arrays import empty, matrix, overlap, span, view
from cuswiglu.common.device import CPU, Device
from tests.helpers.host_arrays import bits, full, poisoned

COUNT = 256  # elements of the buffers below: BF16 tells the first 257 integers apart


def fits(offset, shape, strides):
    """Whether every element lies inside the buffer."""
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = offset + sum(step for step in steps if step < 0)
    return low >= 0 and offset + sum(step for step in steps if step > 0) < COUNT


@st.composite
def layouts(draw):
    """(offset, shape, strides), in elements, of an array inside a buffer of COUNT elements."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    strides = tuple(draw(st.integers(-16, 16)) for _ in shape)
    layout = draw(st.integers(0, COUNT - 1)), shape, strides
    assume(fits(*layout))
    return layout


@st.composite
def row_layouts(draw):
    """The same, mostly rows with one stride; sometimes one stride is changed to anything."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    row = draw(st.integers(shape[-1], 12))
    strides = [row * math.prod(shape[i + 1 : -1]) for i in range(len(shape) - 1)] + [1]
    if draw(st.booleans()):
        strides[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(-20, 20))
    layout = draw(st.integers(0, 60)), shape, tuple(strides)
    assume(fits(*layout))
    return layout


def strided(buffer, offset, shape, strides):
    byte_strides = tuple(stride * buffer.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(buffer[offset:], shape, byte_strides)


def addresses(array):
    """Of every element, in C order."""
    return array.__array_interface__["data"][0] + sum(
        index * stride for index, stride in zip(np.indices(array.shape), array.strides, strict=True)
    )


# view


def test_a_view_of_a_numpy_array_says_where_and_how_it_lies():
    array = poisoned(4, 6, 8)[1:, ::2].transpose(1, 0, 2)
    found = view("x", array)
    assert found.pointer == array.ctypes.data
    assert (found.shape, found.strides, found.ndim) == ((3, 3, 8), (16, 48, 1), 3)
    assert (found.name, found.dtype, found.device) == ("x", "bfloat16", CPU)
    assert found.array is array


@pytest.mark.parametrize("writable", [True, False])
def test_a_view_knows_whether_it_may_be_written(writable):
    array = poisoned(2, 3)
    array.flags.writeable = writable
    assert view("out", array).writable is writable


@pytest.mark.parametrize(("kind", "text"), [("cpu", "the CPU"), ("cuda", "CUDA device 3")])
def test_devices_are_named_in_words(kind, text):
    assert str(Device(kind, 3)) == text


def test_new_arrays_on_the_cpu_are_bf16_and_row_major():
    array = empty((2, 3, 4), CPU)
    assert array.dtype == ml_dtypes.bfloat16
    assert array.flags.c_contiguous
    array[...] = 7
    assert (array == 7).all()


# matrix


@given(row_layouts())
@example((0, (2, 3, 4), (12, 4, 1)))  # contiguous
@example((0, (2, 3, 4), (48, 16, 1)))  # padded rows
@example((0, (3, 2, 4), (4, 12, 1)))  # transposed
@example((0, (2, 1, 4), (4, 99, 1)))  # the stride of one row does not matter
@example((0, (3, 1), (2, 9)))  # nor that of one column
@example((0, (4, 4), (3, 1)))  # overlapping rows
@example((0, (2, 2, 4), (0, 4, 1)))  # broadcast
@settings(max_examples=400, deadline=None)
def test_matrix_is_a_view_of_the_rows_wherever_one_stride_walks_them(layout):
    array = strided(full(np.arange(COUNT)), *layout)
    columns = array.shape[-1]
    rows = addresses(array).reshape(-1, columns)
    steps = set(np.diff(rows[:, 0]).tolist())
    contiguous = (np.diff(rows, axis=1) == 2).all()
    one_stride = len(steps) <= 1 and all(step >= 2 * columns for step in steps)
    if not (contiguous and one_stride):
        with pytest.raises(ValueError, match=r"^x.*must.*: pass numpy\.ascontiguousarray"):
            matrix(view("x", array))
        return
    found = matrix(view("x", array))
    assert found.shape == rows.shape
    assert found.pointer == array.__array_interface__["data"][0]
    np.testing.assert_array_equal(found.array, array.reshape(rows.shape))
    assert found.array.__array_interface__["data"][0] == found.pointer
    assert steps in ({2 * found.strides[0]}, set())


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5), (3, 4, 0), (0,)], ids=str)
def test_matrix_of_an_empty_array_is_empty(shape):
    found = matrix(view("x", poisoned(*shape)))
    assert found.shape == (int(np.prod(shape[:-1])), shape[-1])
    assert found.array.shape == found.shape


def test_matrix_writes_through_to_the_array():
    array = poisoned(2, 3, 4)
    found = matrix(view("out", array), writing=True)
    found.array[...] = np.arange(24).reshape(6, 4)
    np.testing.assert_array_equal(array.ravel(), np.arange(24))


def test_matrix_of_a_one_dimensional_array_is_one_row():
    array = full([1, 2, 3])
    np.testing.assert_array_equal(matrix(view("x", array)).array, [[1, 2, 3]])


# span and overlap


@given(layouts())
@settings(deadline=None)
def test_span_is_the_first_byte_and_the_byte_behind_the_last(layout):
    array = strided(poisoned(COUNT), *layout)
    touched = addresses(array)
    assert span(view("x", array)) == (touched.min(), touched.max() + 2)


@given(layouts(), layouts(), st.booleans())
@example((0, (8, 4), (8, 1)), (4, (8, 4), (8, 1)), False)  # column slices of one buffer
@example((0, (8, 5), (8, 1)), (4, (8, 4), (8, 1)), False)  # the same, sharing a column
@example((0, (8,), (2,)), (0, (8,), (2,)), True)  # halves of elements
@settings(max_examples=400, deadline=None)
def test_overlap_is_a_shared_byte(first, second, odd):
    memory = np.zeros(2 * COUNT + 2, np.uint8)
    shifted = memory[1:-1] if odd else memory[:-2]
    a = strided(memory[:-2].view(ml_dtypes.bfloat16), *first)
    b = strided(shifted.view(ml_dtypes.bfloat16), *second)
    bytes_a, bytes_b = (set(addresses(array).ravel().tolist()) for array in (a, b))
    bytes_a |= {address + 1 for address in bytes_a}
    bytes_b |= {address + 1 for address in bytes_b}
    shared = bool(bytes_a & bytes_b)
    assert overlap(view("a", a), view("b", b)) is shared
    assert overlap(view("b", b), view("a", a)) is shared


@given(layouts(), layouts())
@settings(deadline=None)
def test_overlap_agrees_with_numpy(first, second):
    memory = poisoned(COUNT)
    a, b = strided(memory, *first), strided(memory, *second)
    assert overlap(view("a", a), view("b", b)) is np.shares_memory(a, b)


def test_overlap_reads_and_writes_nothing():
    memory = full(np.arange(12))
    before = bits(memory).copy()
    assert overlap(view("a", memory[:8]), view("b", memory[4:]))
    np.testing.assert_array_equal(bits(memory), before)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_empty_arrays_overlap_nothing(shape):
    memory = poisoned(16)
    inside = np.lib.stride_tricks.as_strided(memory[4:], shape, (8, 2))
    assert not overlap(view("a", inside), view("b", memory))
