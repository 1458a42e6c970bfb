"""How a decode kernel's work is cut: splits, and what follows from one.

Rows of the weights (columns of the result) are cut into tiles, as many of them as make all SMs read
the same bytes. A down projection has few rows: there K is cut too, over the CTAs of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

#: CTAs of a cluster -> of 132 SMs, those on which clusters find room, at one CTA an SM (an H200's
#: driver says 30 clusters of 4, and 15 of 8).
CLUSTER_SMS = {1: 132, 2: 132, 4: 120, 8: 120}


@dataclass(frozen=True)
class Split:
    """A way to cut the work of a decode kernel.

    Attributes
    ----------
    rows : int
        Rows of the weights in a tile.
    ranks : int
        CTAs of a cluster, which share K.
    ctas : int
        CTAs that an SM's shared memory has room for: with 2, the next kernel on the stream starts
        beside this one; with 1, more stages are in flight.
    """

    rows: int
    ranks: int
    ctas: int

    def __str__(self) -> str:
        parts = f", K in {self.ranks} parts" if self.ranks > 1 else ""
        return f"tiles of {self.rows} rows of the weights{parts}"

    def clusters(self, multiprocessors: int) -> int:
        """Count the clusters that take tiles at once."""
        one = max(1, CLUSTER_SMS[self.ranks] * multiprocessors // 132 // self.ranks)
        return max(one, multiprocessors // self.ranks) if self.ctas == 2 else one


@dataclass(frozen=True)
class Tiling:
    """Tiles, steps and shared memory of a CTA that follow from a split of a problem.

    Attributes
    ----------
    items : int
        Tiles of weights times tiles of tokens, for the clusters to take.
    steps : int
        Steps of K, for the rank with the most.
    stages : int
        Steps in flight.
    shared_bytes : int
    box_rows, x_rows : int
        Rows of TMA boxes: of weights along N, and of X.
    boxes, weight_bytes : int
        TMA boxes of a step, and its bytes of weights.
    """

    items: int
    steps: int
    stages: int
    shared_bytes: int
    box_rows: int
    x_rows: int
    boxes: int
    weight_bytes: int
