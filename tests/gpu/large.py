"""Operands of billions of elements: made in milliseconds, and every element of a result compared.

Rows of x and columns of the weights repeat, with periods that are odd primes. So does the result,
and FP64 of one period says what all of it is. An element that is read or written at a wrong place,
by a tile, a row or 2^32 bytes too far, comes from another place of the period.
"""

from __future__ import annotations

import functools

import ml_dtypes
import pytest

from tests.gpu.compare import NEAR_ZERO

#: Rows of x, and columns of the weights, until they repeat.
ROWS, COLUMNS = 251, 509
GIB = 1 << 30
NAN = 0x7FB5  # with bits that nobody writes
GUARD = 1 << 16  # elements before and behind a result

_COMPARE = r"""
extern "C" __global__ void compare(unsigned short const* buffer, long long size, long long offset,
                                   long long stride, long long m, long long n,
                                   double const* expected, long long rows, long long columns,
                                   double relative, double absolute, unsigned short nan,
                                   unsigned long long* found) {
  long long const step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
    long long const at = i - offset, row = at < 0 ? m : at / stride, column = at - row * stride;
    unsigned short const bits = buffer[i];
    if (row < m && column < n) {
      double const value = __uint_as_float((unsigned)bits << 16);
      double const wanted = expected[row % rows * columns + column % columns];
      if (!(fabs(value - wanted) <= relative * fabs(wanted) + absolute)) {
        atomicAdd(&found[0], 1ull);
        atomicMin(&found[1], (unsigned long long)i);
      }
    } else if (bits != nan) {
      atomicAdd(&found[2], 1ull);
      atomicMin(&found[3], (unsigned long long)i);
    }
  }
}
"""


def need(cupy, gib):
    """Skip the test where the GPU has not so much free memory."""
    cupy.get_default_memory_pool().free_all_blocks()
    free, total = cupy.cuda.runtime.memGetInfo()
    if free < gib * GIB:
        pytest.skip(
            f"needs {gib} GiB of GPU memory, {free / GIB:.1f} of {total / GIB:.1f} are free"
        )


def nan_filled(cupy, size):
    """A flat array of NaN: what is read of it by mistake is seen in the result."""
    buffer = cupy.empty(size, cupy.uint16)
    buffer.fill(NAN)
    return buffer.view(ml_dtypes.bfloat16)


def at(buffer, offset, rows, columns, stride):
    """The (rows, columns) view of a flat array, from an element on, with this row stride."""
    strides = (stride * buffer.itemsize, buffer.itemsize)
    make = type(buffer)
    return make((rows, columns), buffer.dtype, buffer[offset:].data, strides=strides)


def repeated(cupy, block, rows):
    """The first `rows` rows of a block that follows itself without end."""
    period, columns = block.shape
    result = cupy.empty((rows, columns), block.dtype)
    whole = rows // period
    result[: whole * period].reshape(whole, period, columns)[...] = block
    result[whole * period :] = block[: rows - whole * period]
    return result


def repeated_columns(cupy, block, columns):
    """The same along rows: what lies along N."""
    rows, period = block.shape
    result = cupy.empty((rows, columns), block.dtype)
    whole = columns // period
    result[:, : whole * period].reshape(rows, whole, period)[...] = block[:, None]
    result[:, whole * period :] = block[:, : columns - whole * period]
    return result


def weight(cupy, block, n):
    """A (K, n) weight of a block of columns, which lies as the block does."""
    if block.strides[0] < block.strides[1]:
        return repeated(cupy, block.T, n).T
    return repeated_columns(cupy, block, n)


def operands(cupy, draw, m, k, n, layout):
    """x, gate and up of a size, and the blocks that they repeat."""
    blocks = draw(min(m, ROWS), k, min(n, COLUMNS), layout)
    x, gate, up = blocks
    return (repeated(cupy, x, m), weight(cupy, gate, n), weight(cupy, up, n)), blocks


@functools.cache
def _comparison():
    import cupy

    return cupy.RawKernel(_COMPARE, "compare")


class Result:
    """An (m, n) output full of NaN, inside a larger buffer of it.

    Attributes
    ----------
    array : (m, n) cupy.ndarray
    buffer : flat cupy.ndarray
        In which `array` begins at element `offset`, with `stride` from row to row.
    """

    def __init__(self, cupy, m, n, *, stride=None, offset=GUARD):
        self._m, self._n = m, n
        self._stride, self._offset = n + 8 if stride is None else stride, offset
        last = offset + (m - 1) * self._stride + n
        self.buffer = nan_filled(cupy, last + GUARD)
        self.array = at(self.buffer, offset, m, n, self._stride)

    def poison(self):
        """NaN everywhere, as when it was new."""
        self.buffer.view("uint16").fill(NAN)

    def wrong(self, cupy, expected, k, *, flips=0.0):
        """What is wrong with it, in words, or "".

        `expected` is the FP64 period, of any number of rows and columns; `k` is how many products
        are summed. As `compare.assert_close`, but for sums of more than 4096; `flips` is what
        `compare.of_flips` allows an MLP.
        """
        scale = float(cupy.sqrt((expected**2).mean()))
        absolute = (NEAR_ZERO * max(1.0, k / 4096) + flips) * scale
        expected = cupy.ascontiguousarray(expected)
        found = cupy.array([0, 2**64 - 1, 0, 2**64 - 1], cupy.uint64)
        limits = self.buffer.size, self._offset, self._stride, self._m, self._n
        arguments = (self.buffer.view("uint16"), *map(cupy.int64, limits), expected)
        arguments += (*map(cupy.int64, expected.shape), cupy.float64(2**-8))
        arguments += (cupy.float64(absolute), cupy.uint16(NAN), found)
        _comparison()((132 * 16,), (512,), arguments)
        wrong, first, outside, touched = (int(number) for number in found.get())
        said = []
        if wrong:
            row, column = divmod(first - self._offset, self._stride)
            value = float(self.buffer[first : first + 1].astype(cupy.float32)[0])
            wanted = float(expected[row % expected.shape[0], column % expected.shape[1]])
            said.append(
                f"{wrong} of {self._m * self._n} elements are wrong, the first in row {row}, "
                f"column {column}: {value}, expected {wanted} within {absolute:.2g}"
            )
        if outside:
            row, column = divmod(touched - self._offset, self._stride)
            said.append(
                f"{outside} elements outside of out were written, the first where row {row}, "
                f"column {column} would be"
            )
        return "; ".join(said)
