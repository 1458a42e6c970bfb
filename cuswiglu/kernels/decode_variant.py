"""Kernels for few tokens: rows of the weights are the MMA's M."""

from __future__ import annotations

from dataclasses import dataclass

from .variant import SHARED_BYTES, Variant


@dataclass(frozen=True)
class DecodeVariant(Variant):
    """A kernel for few tokens: rows of the weights are the MMA's M, tokens its N.

    How its work is cut is said at each launch (`decode.Split`).

    Attributes
    ----------
    tokens : int
        Columns of the MMA; more tokens are walked in tiles of so many.
    mma_rows, max_rows : int
        Rows of the weights that a warpgroup multiplies at once, and that a tile may have.
    max_ranks : int
        CTAs of a cluster, which share K.
    max_stages : int
        Steps of K in flight.
    ctas : int
        CTAs that find registers on an SM.
    barrier_bytes, chunk : int
        What shared memory is computed with: of barriers, and tokens whose sums are sent at a time.
    """

    tokens: int
    mma_rows: int
    max_rows: int
    max_ranks: int
    max_stages: int
    ctas: int
    barrier_bytes: int
    chunk: int

    @property
    def most_shared(self) -> int:
        return SHARED_BYTES
