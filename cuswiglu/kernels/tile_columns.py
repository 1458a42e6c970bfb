"""How the columns of a result are cut into tiles, so that waves come out even.

A kernel's tiles may be as wide as `TileVariant.block_n`, or narrower in steps. A launch uses at
most two widths: columns of the wide one first, then columns of the narrow one. Clusters take tiles
in turns, so the launch takes as long as the cluster with the most work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# A step of K costs a tile as much as this many columns besides its own: fitted to tiles of
# 128 x 64, 80 and 96, gate and up, on an H200.
STEP_COLUMNS = 13
# The narrow width is tried from each of so many last waves on: more change little.
LAST_WAVES = 8


@dataclass(frozen=True)
class Cut:
    """How N, or M, is cut into tiles: `wide` of `wide_width`, then `narrow` of `narrow_width`."""

    wide: int
    wide_width: int
    narrow: int
    narrow_width: int

    @property
    def count(self) -> int:
        """Number of tiles."""
        return self.wide + self.narrow

    @property
    def covered(self) -> int:
        """Elements that the tiles cover."""
        return self.wide * self.wide_width + self.narrow * self.narrow_width

    def padding(self, size: int) -> float:
        """Share of what the tiles cover that lies beyond `size`."""
        return 1 - size / self.covered

    def __str__(self) -> str:
        widths = (self.wide, self.wide_width), (self.narrow, self.narrow_width)
        return " + ".join(f"{count} x {width}" for count, width in widths if count)


def uniform(n: int, width: int) -> Cut:
    """Cut N, or M, into tiles of one width."""
    return Cut(-(-n // width), width, 0, width)


def busiest(columns: Cut, rows: int, resident: int, block_n: int) -> float:
    """Compute the work of the cluster with the most of it, in tiles of full width.

    Parameters
    ----------
    columns : Cut
    rows : int
        Rows of clusters.
    resident : int
        Clusters that run at once, and take tiles in turns.
    block_n : int
        The full width.
    """
    # The first cluster: wide tiles come first, and turns begin with it.
    of_all = -(-columns.count * rows // resident)
    of_wide = -(-columns.wide * rows // resident)
    wide_cost = (columns.wide_width + STEP_COLUMNS) / (block_n + STEP_COLUMNS)
    narrow_cost = (columns.narrow_width + STEP_COLUMNS) / (block_n + STEP_COLUMNS)
    return of_wide * wide_cost + (of_all - of_wide) * narrow_cost


def best(n: int, rows: int, resident: int, widths: Sequence[int]) -> Cut:
    """Find the columns with the least work for the busiest cluster; of equals, the fewest tiles.

    Parameters
    ----------
    n : int
        Columns of the result.
    rows, resident : int
        As in `busiest`.
    widths : sequence of int
        Widths a kernel can have, widest first.
    """

    def cost(columns: Cut) -> tuple[float, int, int]:
        work = busiest(columns, rows, resident, widths[0])
        return round(work, 9), columns.count, columns.narrow

    return min(_candidates(n, rows, resident, widths), key=cost)


def _candidates(n: int, rows: int, resident: int, widths: Sequence[int]) -> Iterator[Cut]:
    for index, wide in enumerate(widths):
        yield uniform(n, wide)
        for narrow in widths[index + 1 :]:
            # Wide tiles for whole waves, as many as leave something to the narrow ones.
            waves = (-(-n // wide) - 1) * rows // resident
            for full in range(max(0, waves - LAST_WAVES), waves + 1):
                columns = full * resident // rows
                if columns:
                    yield Cut(columns, wide, -(-(n - columns * wide) // narrow), narrow)
