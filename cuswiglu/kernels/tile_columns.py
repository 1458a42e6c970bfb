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
class Columns:
    """`wide` columns of tiles of `wide_width`, then `narrow` of `narrow_width` (elements of N)."""

    wide: int
    wide_width: int
    narrow: int
    narrow_width: int

    @property
    def count(self) -> int:
        """Number of columns of tiles."""
        return self.wide + self.narrow


def uniform(n: int, width: int) -> Columns:
    """Cut N into columns of one width."""
    return Columns(-(-n // width), width, 0, width)


def busiest(columns: Columns, rows: int, resident: int, block_n: int) -> float:
    """Compute the work of the cluster with the most of it, in tiles of full width.

    Parameters
    ----------
    columns : Columns
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


def best(n: int, rows: int, resident: int, widths: Sequence[int]) -> Columns:
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

    def cost(columns: Columns) -> tuple[float, int, int]:
        work = busiest(columns, rows, resident, widths[0])
        return round(work, 9), columns.count, columns.narrow

    return min(_candidates(n, rows, resident, widths), key=cost)


def _candidates(n: int, rows: int, resident: int, widths: Sequence[int]) -> Iterator[Columns]:
    for index, wide in enumerate(widths):
        yield uniform(n, wide)
        for narrow in widths[index + 1 :]:
            # Wide tiles for whole waves, as many as leave something to the narrow ones.
            waves = (-(-n // wide) - 1) * rows // resident
            for full in range(max(0, waves - LAST_WAVES), waves + 1):
                columns = full * resident // rows
                if columns:
                    yield Columns(columns, wide, -(-(n - columns * wide) // narrow), narrow)
