"""Kernels of tiles of the result: tokens are the MMA's M."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..problem import Problem
from . import tile_columns
from .estimate import Rates, Work
from .launch_shape import LaunchShape, ResidentClusters
from .split import Split
from .tile_columns import Cut, uniform
from .variant import Estimate, Variant

# Rate of one Hopper SM: the datasheet's dense BF16 rate of 989.5 TFLOP/s on 132 SMs at 1.83 GHz.
FLOPS_PER_CYCLE = 4096
# Shared memory gives and takes 128 bytes a cycle.
SHARED_BYTES_PER_CYCLE = 128
ELEMENT_BYTES = 2
# Clock that the power limit leaves in long runs, measured on an H200.
CYCLES_PER_US = 1450.0
# Launch, first loads and last stores, partly hidden behind the kernel ahead.
LAUNCH_US = 2.3
# Products of one weight, where tiles do not divide M: rows behind the last are loaded as zeros, and
# that takes TMA longer than rows that are there (1.0 to 1.9 times, 1.3 in the mean of 154 runs).
PADDED = 1.3
HIDING = 2.454  # as `Work.hiding`: fitted
# Values of raster_rows that tuning measures.
RASTERS = (16, 8, 4)


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
        """Dynamic shared memory that a CTA may ask for (bytes)."""
        return self.shared_bytes

    @property
    def cluster_tokens(self) -> int:
        """Tokens that a cluster computes at once."""
        return self.block_m * self.cluster_m

    def box(self, operand: str) -> tuple[int, int, int]:
        """TMA box of an operand."""
        return dict(self.boxes)[operand]

    def weight_box(self, layout: str, columns: Cut) -> tuple[int, int, int]:
        """TMA box of a weight, in a launch whose result is cut so."""
        contiguous, rows, span = self.box(f"weight_{layout}")
        return contiguous, columns.wide_width if layout in self.fitted_boxes else rows, span

    def rows(self, m: int) -> int:
        """Rows of clusters that cover M."""
        return -(-m // self.cluster_tokens)

    def columns(self, m: int, n: int, layout: str, resident: int) -> Cut:
        """Cut N into columns of tiles when `resident` clusters run at once."""
        return tile_columns.best(n, self.rows(m), resident, dict(self.widths)[layout])

    def resident(self, multiprocessors: int) -> int:
        """Count the clusters that run at once, as far as the number of SMs tells."""
        return max(1, multiprocessors // self.cluster_m)

    def _cut(self, m: int, n: int, layout: str, at_once: int) -> tuple[Cut, float]:
        """Cut N into columns; count the work of the busiest cluster, in tiles of full width."""
        cut = self.columns(m, n, layout, at_once)
        return cut, tile_columns.busiest(cut, self.rows(m), at_once, self.block_n)

    def work(self, m: int, n: int, k: int, layout: str, multiprocessors: int) -> Work:
        """Count what a launch does besides its products."""
        at_once = self.resident(multiprocessors)
        return self._work(m, n, k, *self._cut(m, n, layout, at_once), at_once)

    def _work(self, m: int, n: int, k: int, cut: Cut, waves: float, at_once: int) -> Work:
        k_tiles = -(-k // self.block_k)
        weights = 2 if self.gated else 1
        loaded = self.block_m + weights * self.block_n / self.cluster_m  # rows of a step, a CTA
        row_bytes = ELEMENT_BYTES * self.block_k
        products = self.rows(m) * self.cluster_tokens * cut.covered * weights
        return Work(
            weight_bytes=float(ELEMENT_BYTES * weights * n * k),
            l2_bytes=waves * k_tiles * at_once * self.cluster_m * loaded * row_bytes,
            flops=2.0 * products * k_tiles * self.block_k,
            hiding=HIDING,
        )

    def rated_waves(self, m: int, n: int, layout: str, multiprocessors: int) -> float:
        """Work of the busiest cluster, in tiles of full width."""
        return self._cut(m, n, layout, self.resident(multiprocessors))[1]

    def analytic_rates(self) -> Rates:
        """Derive rates from the tile alone, for a kernel that was never measured."""
        weights = 2 if self.gated else 1
        columns = weights * self.block_n
        passes = 1
        if self.family == "sync":
            columns, passes = self.block_n, 2
        tensor = 2 * self.block_m * columns * self.block_k / FLOPS_PER_CYCLE
        # Each 64-row WGMMA reads its rows of X and all columns of the weights; TMA writes a stage.
        row_blocks = self.block_m // 64
        read = self.block_m + row_blocks * columns
        written = self.block_m + columns
        shared = 2 * self.block_k * (read + written) / SHARED_BYTES_PER_CYCLE
        step = passes * max(tensor, shared) / CYCLES_PER_US
        # Activation and stores of a tile: hidden in pingpong, but for the last.
        epilogue = 0.0 if self.schedule == "pingpong" else 1.5
        return Rates(step, epilogue + 0.2)

    def estimate(
        self, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
    ) -> Estimate | None:
        """Estimate a launch as waves of tiles.

        A tile takes a time per step of K, which tensor cores or shared memory bound and which was
        measured for each kernel where it could be, and a time of its own for the epilogue that the
        next tile does not hide. With few tokens the weights' bytes take longer.
        """
        at_once = self.resident(multiprocessors)
        cut, count = self._cut(problem.m, problem.n, problem.layout, at_once)
        rates = measured.get(self.name) or self.analytic_rates()
        k_tiles = -(-problem.k // self.block_k)
        products = count * (k_tiles * rates.step_us + rates.tile_us)
        if not problem.gated and problem.m % self.block_m:
            products *= PADDED
        work = self._work(problem.m, problem.n, problem.k, cut, count, at_once)
        us = LAUNCH_US + work.microseconds(products)
        evenness = self.rows(problem.m) * problem.n / (count * at_once * self.block_n)
        rows = uniform(problem.m, self.cluster_tokens)
        return Estimate(self, rows.count * cut.count * self.cluster_m, count, evenness, us, rows)

    def launchable(self, problem: Problem, split: Split | None) -> bool:
        """Whether there is no split: the kernel cuts its work by itself."""
        return split is None

    def cuts(self, problem: Problem, multiprocessors: int) -> Iterator[tuple[int, Split | None]]:
        """Yield rasters; one alone where all tiles run at once."""
        at_once = self.resident(multiprocessors)
        cut = self.columns(problem.m, problem.n, problem.layout, at_once)
        several = self.rows(problem.m) * cut.count > at_once
        for raster_rows in RASTERS if several else RASTERS[:1]:
            yield raster_rows, None

    def launch_shape(
        self, problem: Problem, raster_rows: int, split: Split | None, resident: ResidentClusters
    ) -> LaunchShape:
        """Shape a launch on a device that holds so many clusters."""
        at_once = resident(self.cluster_m, self.shared_bytes)
        columns = self.columns(problem.m, problem.n, problem.layout, at_once)
        rows = self.rows(problem.m)
        weight = self.weight_box(problem.layout, columns)
        return LaunchShape(
            columns=columns,
            rows=uniform(problem.m, self.cluster_tokens),
            cluster=self.cluster_m,
            clusters=min(rows * columns.count, at_once),
            shared_bytes=self.shared_bytes,
            boxes={
                "x": self.box("x"),
                "w_first": weight,
                "w_second": weight,
                "out": self.box("out"),
            },
            integers={
                "m": problem.m,
                "n": problem.n,
                "k": problem.k,
                "raster_rows": raster_rows or self.raster_rows,
                "wide": columns.wide,
                "wide_width": columns.wide_width,
                "narrow_width": columns.narrow_width,
            },
        )
