"""Kernels that keep their weights in shared memory over all rows: short K, many rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..common.device import SHARED_BYTES
from ..problem import Problem
from .estimate import Rates
from .launch_shape import LaunchShape, ResidentClusters
from .split import Split
from .tile_columns import uniform
from .variant import Estimate, Variant

# Consumer warpgroups, which take tiles by turns.
CONSUMERS = 4
# From how many rows on it was measured; and is the fastest kernel, with K of at most SHORT_K, and
# with more.
LEAST_ROWS = 1024
SHORT_K, MANY_ROWS, MOST_ROWS = 192, 2048, 2**18
# The cost model, in microseconds on an H200, fitted to 108 launches of K from 64 to 256: a launch;
# a byte of the weights that a CTA keeps; a tile besides its steps of K, and a step; bytes that pass
# to and from memory in a microsecond. Tiles and memory hide each other by this power of their mean.
LAUNCH_US, KEPT_US = 2.1, 8.3e-6
TILE_US, STEP_US = 0.19, 0.136
MEMORY_RATE = 4.8e6
HIDING = 2.17


def turns(slices: int) -> int:
    """Count the rows of so many tiles after which every consumer has its turns in a row again.

    Stages of X are a multiple of it: the row that had a consumer's stage before was then a row of
    that consumer too, and has come. Loads of other rows may overtake each other.
    """
    return 1 if slices >= CONSUMERS else CONSUMERS // math.gcd(slices, CONSUMERS)


@dataclass(frozen=True)
class Cut:
    """How the work is shared out: columns of tiles by groups, and each group's rows by CTAs.

    Attributes
    ----------
    groups : int
        Of columns of tiles side by side.
    slices : int
        Columns of tiles of the largest group.
    stages : int
        Rows of tiles of X that a CTA has room for.
    workers : int
        CTAs of a group.
    tiles : int
        Of the busiest SM.
    """

    groups: int
    slices: int
    stages: int
    workers: int
    tiles: int


@dataclass(frozen=True)
class ResidentVariant(Variant):
    """A kernel whose CTAs keep columns of both weights, and walk over rows of X.

    Attributes
    ----------
    block_m, block_n : int
        Rows and columns of the result in a tile.
    fixed_bytes : int
        Shared memory beside the weights and the stages of X.
    weight_bytes : int
        Of a step of K of both weights, of the columns of a tile.
    x_bytes : int
        Of a step of K of X, of the rows of a tile.
    max_stages : int
        Rows of tiles of X in flight, at most.
    max_slices : int
        Columns of tiles that a CTA keeps the weights of, at most.
    boxes : tuple of (str, (int, int, int))
        TMA boxes by operand: contiguous elements, rows, bytes of swizzle span.
    """

    block_m: int
    block_n: int
    fixed_bytes: int
    weight_bytes: int
    x_bytes: int
    max_stages: int
    max_slices: int
    boxes: tuple[tuple[str, tuple[int, int, int]], ...]

    @property
    def most_shared(self) -> int:
        """Dynamic shared memory that a CTA may ask for (bytes): all there is."""
        return SHARED_BYTES

    @property
    def cluster_tokens(self) -> int:
        """Tokens that a CTA computes at once."""
        return self.block_m

    @property
    def most_k(self) -> int:
        """Largest K whose weights find room, for one column of tiles."""
        steps = range(1, SHARED_BYTES // self.weight_bytes)
        return max(steps_k for steps_k in steps if self._stages(steps_k, 1, 1)) * self.block_k

    def _stages(self, k_tiles: int, most: int, fewest: int) -> int:
        """Count the stages of X beside so many columns of tiles, at most and at least, of a CTA."""
        if most > self.max_slices:
            return 0
        room = SHARED_BYTES - self.fixed_bytes - most * k_tiles * self.weight_bytes
        unit = max(2, turns(most), turns(fewest))
        return min(self.max_stages, max(0, room) // (k_tiles * self.x_bytes)) // unit * unit

    def considered(self, problem: Problem, able: Sequence[Variant]) -> bool:
        """Whether there are as many rows as it was measured with, or no other kind is able."""
        alone = all(isinstance(kernel, ResidentVariant) for kernel in able)
        return problem.m >= LEAST_ROWS or alone

    def settles(self, problem: Problem) -> bool:
        """Whether K is so short, and rows are so many, that the cost models need not be asked.

        With one to three steps of K it was ahead of all others from 5,120 rows on, by up to 54%,
        but in two of 72 cells (by 1 and 4% behind); with four from 262,144 rows on, by 1 to 16%.
        """
        return problem.m >= (MANY_ROWS if problem.k <= SHORT_K else MOST_ROWS)

    def obstacle(self, problem: Problem) -> str | None:
        """Name the first limit that a problem breaks, or None."""
        found = super().obstacle(problem)
        if found is None and problem.k > self.most_k:
            return f"K must be at most {self.most_k} for {self.name}, got {problem.k}"
        return found

    def cut(self, problem: Problem, at_once: int) -> Cut:
        """Cut a problem for so many CTAs at once: as few tiles for each as can be."""
        rows, columns = -(-problem.m // self.block_m), -(-problem.n // self.block_n)
        k_tiles = -(-problem.k // self.block_k)

        def cut(groups: int) -> Cut:
            slices, workers = -(-columns // groups), max(1, min(rows, at_once // groups))
            waves = -(-groups * workers // at_once)
            return Cut(
                groups,
                slices,
                self._stages(k_tiles, slices, columns // groups),
                workers,
                waves * -(-rows // workers) * slices,
            )

        cuts = map(cut, range(1, columns + 1))
        return min((cut for cut in cuts if cut.stages), key=lambda cut: (cut.tiles, cut.groups))

    def estimate(
        self, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
    ) -> Estimate | None:
        """Estimate a launch: the busiest CTA's tiles, or the bytes of X and the result."""
        cut = self.cut(problem, multiprocessors)
        rows = uniform(problem.m, self.block_m)
        k_tiles = -(-problem.k // self.block_k)
        products = cut.tiles * (TILE_US + k_tiles * STEP_US)
        moved = problem.x.bytes(problem.m * problem.k) + problem.out.bytes(problem.m * problem.n)
        busy = (products**HIDING + (moved / MEMORY_RATE) ** HIDING) ** (1 / HIDING)
        kept = cut.slices * k_tiles * self.weight_bytes
        room = cut.tiles * multiprocessors * self.block_m * self.block_n
        return Estimate(
            self,
            tiles=rows.count * -(-problem.n // self.block_n),
            waves=cut.tiles,
            evenness=problem.m * problem.n / room,
            us=LAUNCH_US + KEPT_US * kept + busy,
            rows=rows,
        )

    def launchable(self, problem: Problem, split: Split | None) -> bool:
        """Whether there is no split: the kernel cuts its work by itself."""
        return split is None

    def cuts(self, problem: Problem, multiprocessors: int) -> Iterator[tuple[int, Split | None]]:
        """Yield the one way that there is."""
        yield 0, None

    def launch_shape(
        self, problem: Problem, raster_rows: int, split: Split | None, resident: ResidentClusters
    ) -> LaunchShape:
        """Shape a launch on a device that holds so many CTAs."""
        cut = self.cut(problem, resident(1, self.most_shared))
        k_tiles = -(-problem.k // self.block_k)
        step = cut.slices * self.weight_bytes + cut.stages * self.x_bytes
        boxes = dict(self.boxes)
        weight = boxes[f"weight_{problem.layout}"]
        return LaunchShape(
            columns=uniform(problem.n, self.block_n),
            rows=uniform(problem.m, self.block_m),
            cluster=1,
            clusters=cut.groups * cut.workers,
            shared_bytes=self.fixed_bytes + k_tiles * step,
            boxes={"x": boxes["x"], "w_first": weight, "w_second": weight, "out": boxes["out"]},
            integers={
                "m": problem.m,
                "n": problem.n,
                "k": problem.k,
                "groups": cut.groups,
                "stages": cut.stages,
            },
        )
