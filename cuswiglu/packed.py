"""Packed weights: gate and up in one matrix, for the interleave family of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import arrays, problem

#: Columns of gate, then of up, by turns. 8 is a column group of WGMMA's accumulators, so that gate
#: and up meet in one thread in the order that stmatrix stores: the fastest. 1 is the paper's
#: even/odd layout (arXiv 2607.02521), whose results must be stored two bytes at a time.
GRANULARITIES = (8, 1)


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
    """

    array: Any
    granularity: int

    def __post_init__(self) -> None:
        _check_granularity(self.granularity)

    @property
    def k(self) -> int:
        """Hidden size."""
        return int(self.array.shape[1])

    @property
    def n(self) -> int:
        """Intermediate size."""
        return int(self.array.shape[0]) // 2

    def unpack(self) -> tuple[Any, Any]:
        """w_gate and w_up, (K, N) each, contiguous along K: new arrays, the same bits."""
        gate, up = split(self.array, self.granularity)
        shape = (self.n, self.k)
        return gate.reshape(shape).T, up.reshape(shape).T

    def __repr__(self) -> str:
        return f"PackedWeights(K={self.k}, N={self.n}, granularity={self.granularity})"


def _check_granularity(granularity: int) -> None:
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity must be 8 or 1, got {granularity!r}")


def split(array: Any, granularity: int) -> tuple[Any, Any]:
    """Views (N / G, G, K) of gate's and of up's rows in a packed (2N, K) array."""
    rows, k = array.shape
    turns = array.reshape(rows // (2 * granularity), 2, granularity, k)
    return turns[:, 0], turns[:, 1]


def pack(w_gate: Any, w_up: Any, *, granularity: int = 8, stream: Any = None) -> PackedWeights:
    """Copy gate and up into one matrix, by turns of `granularity` columns.

    Parameters
    ----------
    w_gate, w_up : (K, N) array
        BF16 or FP16, as in `cuswiglu.swiglu`, each contiguous along either dimension.
    granularity : 8 or 1
        N must be a multiple of it.
    stream : optional
        As in `cuswiglu.swiglu`.

    Returns
    -------
    PackedWeights
        On the weights' device; exact, and reversible by `PackedWeights.unpack`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    _check_granularity(granularity)
    gate, up = problem.view_all(stream, w_gate=w_gate, w_up=w_up)
    problem.check_weights(gate, up)
    k, n = gate.shape
    if n % granularity:
        raise ValueError(
            f"w_gate must have a multiple of {granularity} columns to be packed by turns of "
            f"{granularity}, got {n}: pass granularity=1"
        )
    with arrays.on_stream(gate.device, stream):
        packed = arrays.empty((2 * n, k), gate.device, gate.dtype)
        for half, weight in zip(split(packed, granularity), (gate, up), strict=True):
            half[...] = weight.array.T.reshape(half.shape)
    return PackedWeights(packed, granularity)
