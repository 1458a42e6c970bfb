"""Kernels of tiles of the result: tokens are the MMA's M."""

from __future__ import annotations

from dataclasses import dataclass

from . import tile_columns
from .tile_columns import Columns
from .variant import Variant


@dataclass(frozen=True)
class TileVariant(Variant):
    """A kernel of tiles of the result: tokens are the MMA's M.

    Attributes
    ----------
    schedule : str
        "pingpong" or "cooperative".
    block_m, block_n : int
        The tile of the result that one CTA computes (elements).
    cluster_m : int
        CTAs of a cluster, along M.
    stages : int
        Tiles of X and of the weights in flight.
    shared_bytes : int
        Dynamic shared memory per CTA.
    raster_rows : int
        Rows of clusters walked before the next column, unless selection says otherwise.
    widths : tuple of (str, tuple of int)
        Weight layout -> widths that a column of tiles can have, `block_n` first.
    boxes : tuple of (str, (int, int, int))
        TMA box of each operand, as (contiguous elements, rows, bytes of swizzle span).
    fitted_boxes : tuple of str
        Weight layouts whose boxes have just the rows of a launch's widest tiles.
    """

    schedule: str
    block_m: int
    block_n: int
    cluster_m: int
    stages: int
    shared_bytes: int
    raster_rows: int
    widths: tuple[tuple[str, tuple[int, ...]], ...]
    boxes: tuple[tuple[str, tuple[int, int, int]], ...]
    fitted_boxes: tuple[str, ...]

    @property
    def most_shared(self) -> int:
        return self.shared_bytes

    @property
    def tiles_a_cluster(self) -> int:
        return self.cluster_m

    def box(self, operand: str) -> tuple[int, int, int]:
        return dict(self.boxes)[operand]

    def weight_box(self, major: str, columns: Columns) -> tuple[int, int, int]:
        """The TMA box of a weight, in a launch whose result is cut so."""
        contiguous, rows, span = self.box(f"weight_{major}")
        return contiguous, columns.wide_width if major in self.fitted_boxes else rows, span

    def rows(self, m: int) -> int:
        """Rows of clusters that cover M."""
        return -(-m // (self.block_m * self.cluster_m))

    def columns(self, m: int, n: int, major: str, resident: int) -> Columns:
        """How to cut N into columns of tiles when `resident` clusters run at once."""
        return tile_columns.best(n, self.rows(m), resident, dict(self.widths)[major])
