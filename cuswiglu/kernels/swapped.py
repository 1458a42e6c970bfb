"""Kernels of tiles whose operands are exchanged: tokens are the MMA's N, which goes in steps of 8.

M is cut into columns of nearly the same number of tokens, N into blocks of rows of the weights. How
many columns, how many rows, and whether the tiles of the last wave are cut along K is chosen for
each problem by the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..common.device import SHARED_BYTES
from ..problem import Layout, Problem
from . import swapped_cost
from .estimate import Rates, Work
from .launch_shape import LaunchShape, ResidentClusters
from .split import Split
from .swapped_cost import Constants
from .tile_columns import Cut, uniform
from .variant import Estimate, Variant

TOKEN_STEP = 8  # of a WGMMA's N
#: Fewer tokens are a decode kernel's.
LEAST_TOKENS = 65
# Numbers of columns that are tried, from the fewest on; and so few, rows of boxes besides.
MORE_COLUMNS, FEW_COLUMNS = 12, 5
BOX_ROWS = (64, 56, 48, 40)
# Values of raster_rows that tuning measures.
RASTERS = (16, 4)
SPAN = 128  # bytes, of a swizzle


@dataclass(frozen=True)
class Slicing:
    """How a problem is cut.

    Attributes
    ----------
    tokens : Cut
        M into columns of tokens.
    box_rows : int
        Rows of a box of weights.
    tiles : int
        Tiles of a cluster, in all columns.
    whole : int
        Those of them that are not cut along K.
    """

    tokens: Cut
    box_rows: int
    tiles: int
    whole: int


@dataclass(frozen=True)
class SwappedVariant(Variant):
    """A kernel of tiles whose rows of the weights are the MMA's M, and tokens its N.

    Attributes
    ----------
    fewest, most : int
        Tokens that a column of tiles can have, in steps of 8.
    block_n : int
        Columns of the result in a tile, of whole boxes of weights.
    cluster_n : int
        CTAs of a cluster. Two lie along N, and share X; more share each tile, along K.
    raster_rows : int
        Clusters along N that are walked before the next, unless selection says otherwise.
    mma_rows : int
        Rows of a whole box of weights.
    fixed_bytes, max_stages : int
        What shared memory is computed with: bytes beside the stages, and steps of K in flight.
    """

    fewest: int
    most: int
    block_n: int
    cluster_n: int
    raster_rows: int
    mma_rows: int
    fixed_bytes: int
    max_stages: int

    @property
    def most_shared(self) -> int:
        """Dynamic shared memory that a CTA may ask for (bytes): all there is."""
        return SHARED_BYTES

    @property
    def cluster_tokens(self) -> int:
        """Tokens that a cluster computes at once, at most."""
        return self.most

    @property
    def splits_all(self) -> bool:
        """Whether all tiles are cut along K, over the cluster."""
        return self.cluster_n > 2

    @property
    def sharers(self) -> int:
        """CTAs of a cluster that lie along N, and share X."""
        return 1 if self.splits_all else self.cluster_n

    def obstacle(self, problem: Problem) -> str | None:
        """Name the first limit that a problem breaks, or None."""
        found, others = super().obstacle(problem), (self.cluster_n - 1) * self.block_k
        if found is None and self.splits_all and problem.k <= others:
            steps = f"more than {others}, for each CTA of a cluster multiplies a part"
            return f"K must be {steps} in {self.name}, got {problem.k}"
        return found

    def resident(self, multiprocessors: int) -> int:
        """Count the clusters that run at once, as far as the number of SMs tells."""
        return max(1, multiprocessors // self.cluster_n)

    def tokens(self, m: int, columns: int) -> Cut:
        """Cut M into so many columns, or into fewer, if these had too few tokens."""
        steps, least = -(-m // TOKEN_STEP), self.fewest // TOKEN_STEP
        each = -(-steps // columns)
        if each <= least:
            return uniform(m, self.fewest)
        narrow = each * columns - steps
        width = each * TOKEN_STEP
        return Cut(columns - narrow, width, narrow, width - TOKEN_STEP)

    def slicing(self, problem: Problem, tokens: Cut, box_rows: int, at_once: int) -> Slicing:
        """Cut a problem, when so many clusters run at once.

        Of a kernel that does not cut all tiles along K, those of the last wave are cut too, if each
        of them finds a cluster then, and K is long enough for all stages to be filled anew.
        """
        columns = self.block_n * box_rows // self.mma_rows * self.sharers
        tiles = -(-problem.n // columns) * tokens.count
        if self.splits_all:
            return Slicing(tokens, box_rows, tiles, 0)
        last = tiles % at_once
        part = -(-problem.k // self.block_k) // self.cluster_n
        splits = (
            self.cluster_n > 1
            and 0 < last * self.cluster_n <= at_once
            and part >= self.stages(tokens.wide_width)
        )
        return Slicing(tokens, box_rows, tiles, tiles - last if splits else tiles)

    def slicings(self, problem: Problem, at_once: int) -> Iterator[Slicing]:
        """Yield the ways to cut a problem that are worth a thought."""
        least = -(-problem.m // self.most)
        most = max(least, -(-problem.m // self.fewest))
        for columns in range(least, min(least + MORE_COLUMNS, most) + 1):
            tokens = self.tokens(problem.m, columns)
            for box_rows in BOX_ROWS if columns <= FEW_COLUMNS else BOX_ROWS[:1]:
                yield self.slicing(problem, tokens, box_rows, at_once)

    def microseconds(self, problem: Problem, slicing: Slicing, at_once: int) -> float:
        """Estimate the time of a problem that is cut so."""
        width, columns = slicing.tokens.wide_width, slicing.tokens.count
        fitted = self._fitted()
        k_tiles = -(-problem.k // self.block_k)
        steps = self._waves(slicing, at_once) * k_tiles
        element = problem.weights[0]
        ctas = at_once * self.cluster_n
        if self.splits_all:
            ctas = min(ctas, slicing.tiles * self.cluster_n)
        box = element.bytes(2 * slicing.box_rows * self.block_k)
        # The columns of a row of tiles run together, and find its weights in the L2.
        all_waves = steps * ctas * box / columns
        weights = element.bytes((2 if problem.gated else 1) * problem.n * problem.k)
        x = element.bytes(width * self.block_k) / self.sharers
        rows = 2 * self.mma_rows * slicing.tiles * self.sharers
        work = Work(
            weight_bytes=max(weights, all_waves),
            l2_bytes=steps * ctas * (box + x),
            flops=2.0 * rows * width * k_tiles * self.block_k,
            hiding=fitted.hiding,
        )
        return swapped_cost.microseconds(
            fitted,
            work,
            width,
            steps,
            exposed=self._cut_rounds(slicing, at_once) if self.splits_all else 1,
            split=not self.splits_all and slicing.whole < slicing.tiles,
            clustered=self.sharers > 1,
        )

    def _fitted(self) -> Constants:
        if self.splits_all:
            return swapped_cost.SPLIT
        return swapped_cost.GATED if self.gated else swapped_cost.PLAIN

    def _waves(self, slicing: Slicing, at_once: int) -> float:
        whole = -(-slicing.whole // at_once)
        return whole + self._cut_rounds(slicing, at_once) / self.cluster_n

    def _cut_rounds(self, slicing: Slicing, at_once: int) -> int:
        """Count the tiles cut along K of the busiest cluster."""
        return -(-(slicing.tiles - slicing.whole) // at_once)

    def best(self, problem: Problem, at_once: int) -> Slicing:
        """Find the way to cut a problem that is fastest by estimate; of equals the fewest tiles."""
        return min(
            self.slicings(problem, at_once),
            key=lambda cut: (round(self.microseconds(problem, cut, at_once), 6), cut.tiles),
        )

    def estimate(
        self, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
    ) -> Estimate | None:
        """Estimate a launch that is cut in the best way."""
        at_once = self.resident(multiprocessors)
        cut = self.best(problem, at_once)
        waves = self._waves(cut, at_once)
        # A wave that is cut along K fills its time no better: its sums have to meet.
        rounds = self._cut_rounds(cut, at_once) if self.splits_all else math.ceil(waves)
        tiles = rounds * at_once * self.sharers
        room = tiles * self.block_n * cut.tokens.wide_width
        return Estimate(
            self,
            tiles=cut.tiles * self.sharers,
            waves=waves,
            evenness=problem.m * problem.n / room,
            us=self.microseconds(problem, cut, at_once),
            rows=cut.tokens,
        )

    def considered(self, problem: Problem, able: Sequence[Variant]) -> bool:
        """Whether there are enough tokens, or no other kind is able."""
        alone = all(isinstance(kernel, SwappedVariant) for kernel in able)
        return problem.m >= LEAST_TOKENS or alone

    def launchable(self, problem: Problem, split: Split | None) -> bool:
        """Whether there is no split: the kernel cuts its work by itself."""
        return split is None

    def cuts(self, problem: Problem, multiprocessors: int) -> Iterator[tuple[int, Split | None]]:
        """Yield rasters; one alone where all tiles run at once."""
        at_once = self.resident(multiprocessors)
        tiles = self.best(problem, at_once).tiles
        for raster_rows in RASTERS if tiles > at_once else RASTERS[:1]:
            yield raster_rows, None

    def x_rows(self, width: int) -> int:
        """Rows of a TMA box of X: a CTA's share of the widest tiles."""
        return -(-width // (TOKEN_STEP * self.sharers)) * TOKEN_STEP

    def stage_bytes(self, width: int) -> int:
        """Size of a stage: two boxes of weights, and X for the widest tiles."""
        return SPAN * (2 * self.mma_rows + self.sharers * self.x_rows(width))

    def stages(self, width: int) -> int:
        """Count the stages that find room."""
        room = SHARED_BYTES - self.fixed_bytes
        return min(self.max_stages, room // self.stage_bytes(width))

    def launch_shape(
        self, problem: Problem, raster_rows: int, split: Split | None, resident: ResidentClusters
    ) -> LaunchShape:
        """Shape a launch on a device that holds so many clusters."""
        at_once = resident(self.cluster_n, self.most_shared)
        cut = self.best(problem, at_once)
        tokens, width = cut.tokens, cut.tokens.wide_width
        stages = self.stages(width)
        box = self.block_k, cut.box_rows
        weight = (*(box if problem.layout is Layout.K else box[::-1]), SPAN)
        parts = cut.whole + (cut.tiles - cut.whole) * self.sharers
        return LaunchShape(
            columns=uniform(problem.n, self.block_n * cut.box_rows // self.mma_rows),
            rows=tokens,
            cluster=self.cluster_n,
            # A cluster takes one tile that is cut along K.
            clusters=parts if self.splits_all else min(parts, at_once),
            shared_bytes=self.fixed_bytes + stages * self.stage_bytes(width),
            boxes={
                "x": (self.block_k, self.x_rows(width), SPAN),
                "w_first": weight,
                "w_second": weight,
                "out": (cut.box_rows, TOKEN_STEP, SPAN),
            },
            integers={
                "m": problem.m,
                "n": problem.n,
                "k": problem.k,
                "raster_rows": raster_rows or self.raster_rows,
                "columns": tokens.count,
                "wide": tokens.wide,
                "width": width,
                "whole": cut.whole,
                "rows": cut.box_rows,
                "stages": stages,
            },
        )
