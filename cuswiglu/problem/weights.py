"""Weights: gate and up as a pair or packed in one matrix, and how they lie in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .. import arrays
from ..arrays import ArrayView


class Layout(str, Enum):
    """How the weights of a problem lie in memory.

    A packed matrix has columns of gate, then of up, by turns. 8 are a column group of WGMMA's
    accumulators, so that gate and up meet in one thread in the order that stmatrix stores: the
    fastest. 1 is the paper's even/odd layout (arXiv 2607.02521), whose results must be stored two
    bytes at a time.
    """

    K = "k"  # contiguous along K (checkpoint)
    N = "n"  # contiguous along N (Flax)
    PACKED_8 = "p8"
    PACKED_1 = "p1"
    MIXED = "mixed"  # gate and up differ

    def __str__(self) -> str:
        return self.value

    @property
    def packing(self) -> int:
        """Columns that gate and up take turns by in a packed matrix, else 0."""
        return {Layout.PACKED_8: 8, Layout.PACKED_1: 1}.get(self, 0)


GRANULARITIES = tuple(layout.packing for layout in Layout if layout.packing)


@dataclass(frozen=True)
class PackedWeights:
    """w_gate and w_up of a gated MLP in one array, made by `pack`.

    Attributes
    ----------
    array : (2N, K) array
        BF16 or FP16, contiguous. Rows [2Gj, 2Gj + G) are columns [Gj, Gj + G) of w_gate, the G rows
        behind them the same columns of w_up; G is `granularity`.
    granularity : int
        8 or 1.

    It is accepted for `w_gate`, with `w_up` left out, by `swiglu`, `mlp` and `GatedMLP`.

    Examples
    --------
    >>> import numpy as np
    >>> from ml_dtypes import bfloat16
    >>> import cuswiglu
    >>> gate, up = np.zeros((64, 192), bfloat16), np.ones((64, 192), bfloat16)
    >>> packed = cuswiglu.pack(gate, up)
    >>> packed.k, packed.n, packed.array.shape
    (64, 192, (384, 64))
    >>> unpacked = packed.unpack()
    >>> bool((unpacked[0] == gate).all() and (unpacked[1] == up).all())
    True
    """

    array: Any
    granularity: int

    def __post_init__(self) -> None:
        check_granularity(self.granularity)

    @property
    def k(self) -> int:
        """Hidden size."""
        return int(self.array.shape[1])

    @property
    def n(self) -> int:
        """Intermediate size."""
        return int(self.array.shape[0]) // 2

    def unpack(self) -> tuple[Any, Any]:
        """Copy w_gate and w_up, (K, N) each, contiguous along K: new arrays, the same bits."""
        gate, up = split(self.array, self.granularity)
        shape = (self.n, self.k)
        return gate.reshape(shape).T, up.reshape(shape).T

    def __repr__(self) -> str:
        return f"PackedWeights(K={self.k}, N={self.n}, granularity={self.granularity})"


def check_granularity(granularity: int) -> None:
    """Check that gate and up can take turns by so many columns."""
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity must be 8 or 1, got {granularity!r}")


def split(array: Any, granularity: int) -> tuple[Any, Any]:
    """View gate's and up's rows, (N / G, G, K), in a packed (2N, K) array."""
    rows, k = array.shape
    turns = array.reshape(rows // (2 * granularity), 2, granularity, k)
    return turns[:, 0], turns[:, 1]


def weight_layout(weight: ArrayView) -> Layout | None:
    """Tell the layout of a weight: N if rows are contiguous, K if columns are, else None."""
    (rows, columns), (row_stride, column_stride) = weight.shape, weight.strides
    if (column_stride == 1 or columns <= 1) and (row_stride >= columns or rows <= 1):
        return Layout.N
    if (row_stride == 1 or rows <= 1) and (column_stride >= rows or columns <= 1):
        return Layout.K
    return None


def gate_up(w_gate: Any, w_up: Any, stream: Any) -> tuple[ArrayView, ...]:
    """View gate and up, or packed weights, (K, 2N), where `w_up` is left out.

    Raises
    ------
    TypeError
        If `w_up` is missing, or given beside packed weights.
    """
    if isinstance(w_gate, PackedWeights):
        if w_up is not None:
            raise TypeError("w_up must be left out where w_gate is PackedWeights, which hold both")
        whole = arrays.view("w_gate", w_gate.array.T, stream)
        return (dataclasses.replace(whole, packing=w_gate.granularity),)
    if w_up is None:
        raise TypeError("w_up must be given, unless w_gate is PackedWeights (cuswiglu.pack)")
    return tuple(view_all(stream, w_gate=w_gate, w_up=w_up))


def intermediate(weights: Sequence[ArrayView]) -> int:
    """Count the columns N of gate and of up, packed or not."""
    columns = weights[0].shape[1]
    return columns // 2 if weights[0].packing else columns


def view_all(stream: Any, **named: Any) -> list[ArrayView]:
    """View several arguments, in order, for use on `stream`."""
    return [arrays.view(name, array, stream) for name, array in named.items()]
