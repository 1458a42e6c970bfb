"""Kernels for few tokens: rows of the weights are the MMA's M."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ..common.device import SHARED_BYTES
from ..problem import Layout, Problem
from . import decode_cost
from .estimate import PROMISING, Rates
from .launch_shape import LaunchShape, ResidentClusters
from .split import CLUSTER_SMS, Split, Tiling
from .tile_columns import uniform
from .variant import Estimate, Variant

#: Up to so many tokens a decode kernel may be the fastest.
MOST_TOKENS = 128
#: CTAs that are to fit on an SM -> shared memory of each (bytes).
ROOM_BYTES = {1: SHARED_BYTES, 2: 113 << 10}
ATOM_ROWS = 8  # boxes along K are placed at whole swizzle atoms
SLACK_BYTES = 7 << 10  # the MMA reads whole blocks of rows, behind a box with fewer
SHORT, SHORT_TOKENS = 8_000_000, 32  # weights of a matrix, and tokens
LEAST_ROWS = 8  # fewer in a tile are no faster
FEW = 16  # tokens that a split for any M is chosen for
TILES_AT_LEAST = 3  # counts of tiles a CTA that are tried, from the fewest on
MEASURED_SPLITS = 8  # at most: the cheapest by estimate
WARPGROUP = 128  # threads
FP32_BYTES = 4


@dataclass(frozen=True)
class DecodeVariant(Variant):
    """A kernel for few tokens: rows of the weights are the MMA's M, tokens its N.

    How its work is cut is said at each launch (`Split`).

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

    batch_invariant: ClassVar[bool] = True

    @property
    def most_shared(self) -> int:
        """Dynamic shared memory that a CTA may ask for (bytes): all there is."""
        return SHARED_BYTES

    @property
    def cluster_tokens(self) -> int:
        """Tokens that a cluster computes at once."""
        return self.tokens

    def tiling(self, problem: Problem, split: Split) -> Tiling | None:
        """Lay out tiles, steps and shared memory under a split; None if it cannot be launched."""
        x_boxes = _x_boxes(problem)
        all_steps = -(-problem.k // (self.block_k * x_boxes))
        most_ranks = 1 if problem.gated else min(all_steps, self.max_ranks)
        known = split.ranks in CLUSTER_SMS and split.ctas in ROOM_BYTES
        if not known or split.ranks > most_ranks or split.ctas > self.ctas:
            return None
        if not 1 <= split.rows <= self.max_rows or split.rows % _row_granule(problem):
            return None
        steps = -(-all_steps // split.ranks)
        items = -(-problem.n // split.rows) * -(-problem.m // self.tokens)
        along_k = problem.layout is Layout.K
        room = _up(split.rows, ATOM_ROWS if along_k else self.mma_rows)
        row_bytes = problem.weights[0].bytes(self.block_k)
        x_bytes = self.tokens * x_boxes * problem.x.bytes(self.block_k)
        stage_bytes = 2 * room * row_bytes + x_bytes
        tail = max(SLACK_BYTES, self._sums_bytes(split))
        stages = (ROOM_BYTES[split.ctas] - self.barrier_bytes - tail) // stage_bytes
        # No more than there are steps, in the tiles of one CTA.
        stages = min(stages, self.max_stages, steps * items)
        if stages < min(2, steps * items):
            return None
        return Tiling(
            items=items,
            steps=steps,
            stages=stages,
            shared_bytes=self.barrier_bytes + stages * stage_bytes + tail,
            box_rows=split.rows if along_k else self.mma_rows,
            x_rows=min(problem.m, self.tokens),
            boxes=2 + x_boxes,
            weight_bytes=2 * split.rows * row_bytes,
        )

    def _sums_bytes(self, split: Split) -> int:
        """Count bytes for what warpgroups exchange, then sums sent in its place; and received."""
        exchange = 2 * (self.tokens // 4) * WARPGROUP * FP32_BYTES
        if split.ranks == 1:
            return exchange
        share = _up(-(-split.rows // split.ranks), 4)
        sums = split.ranks * self.chunk * share * FP32_BYTES
        return max(exchange, sums) + sums

    def launchable(self, problem: Problem, split: Split | None) -> bool:
        """Whether there is a split, with which the problem can be launched."""
        return split is not None and self.tiling(problem, split) is not None

    def splits(self, problem: Problem, multiprocessors: int) -> Iterator[Split]:
        """Yield splits worth trying: every CTA gets as many tiles, as even as can be."""
        seen = set()
        for ctas in ctas_per_sm_options(problem):
            for ranks in (1,) if problem.gated else CLUSTER_SMS:
                at_once = Split(1, ranks, ctas).clusters(multiprocessors)
                fewest = -(-problem.n // (at_once * self.max_rows))
                for tiles in range(fewest, fewest + TILES_AT_LEAST):
                    rows = max(LEAST_ROWS, -(-problem.n // (at_once * tiles)))
                    split = Split(_up(rows, _row_granule(problem)), ranks, ctas)
                    if split not in seen and self.launchable(problem, split):
                        seen.add(split)
                        yield split
            if seen:
                return

    def microseconds(self, problem: Problem, split: Split, multiprocessors: int) -> float:
        """Estimate the time of a split that can be launched."""
        tiling = self.tiling(problem, split)
        assert tiling is not None
        products = -(-split.rows // self.mma_rows) * self.tokens / 64
        return decode_cost.microseconds(problem, split, tiling, products, multiprocessors)

    def ranked(self, problem: Problem, multiprocessors: int) -> list[tuple[float, Split]]:
        """Estimate the splits worth trying; list them, cheapest first."""
        found = [
            (self.microseconds(problem, split, multiprocessors), split)
            for split in self.splits(problem, multiprocessors)
        ]
        return sorted(found, key=lambda pair: (pair[0], dataclasses.astuple(pair[1])))

    def estimate(
        self, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
    ) -> Estimate | None:
        """Estimate a launch with the cheapest split; None if there is none."""
        found = self.ranked(problem, multiprocessors)
        if not found:
            return None
        us, split = found[0]
        tiling = self.tiling(problem, split)
        assert tiling is not None
        at_once = split.clusters(multiprocessors)
        rounds = -(-tiling.items // at_once)
        evenness = tiling.items / (rounds * at_once)
        rows = uniform(problem.m, self.tokens)
        return Estimate(self, tiling.items, rounds, evenness, us, rows, split)

    def cuts(self, problem: Problem, multiprocessors: int) -> Iterator[tuple[int, Split | None]]:
        """Yield the splits that are cheapest by estimate, and promising."""
        found = self.ranked(problem, multiprocessors)
        for us, split in found[:MEASURED_SPLITS]:
            if us <= PROMISING * found[0][0]:
                yield 1, split

    def considered(self, problem: Problem, able: Sequence[Variant]) -> bool:
        """Whether it is the one for so many tokens, if they are few or no other kind is able."""
        peers = [kernel for kernel in able if kernel.family == self.family]
        few = problem.m <= MOST_TOKENS or len(peers) == len(able)
        return few and smallest_fitting(peers, problem.m) is self

    def split_for_any_m(
        self, able: Sequence[DecodeVariant], problem: Problem, multiprocessors: int
    ) -> Split | None:
        """Find the split that is best for few tokens among those that every kernel can have.

        Its `ctas` are what this kernel has room for: more do not change the result.
        """
        few = dataclasses.replace(problem, m=FEW)
        for _, split in smallest_fitting(able, FEW).ranked(few, multiprocessors):
            alone = dataclasses.replace(split, ctas=1)
            if all(kernel.launchable(problem, alone) for kernel in able):
                rooms = (dataclasses.replace(split, ctas=n) for n in ctas_per_sm_options(problem))
                return next(cut for cut in rooms if self.launchable(problem, cut))
        return None

    def launch_shape(
        self, problem: Problem, raster_rows: int, split: Split | None, resident: ResidentClusters
    ) -> LaunchShape:
        """Shape a launch with a split.

        Raises
        ------
        ValueError
            If there is no split, or it cannot be launched.
        """
        tiling = None if split is None else self.tiling(problem, split)
        if split is None or tiling is None:
            raise ValueError(f"{self.name} cannot be launched with {split} for this problem")
        # One CTA an SM takes tiles in turns, unless a few more, beside others, take all at once.
        alone = resident(split.ranks, self.most_shared)
        beside = resident(split.ranks, tiling.shared_bytes)
        all_at_once = tiling.items <= min(beside, alone + alone // 8)
        box = self.block_k, tiling.box_rows
        contiguous, rows = box if problem.layout is Layout.K else reversed(box)
        weight = (contiguous, rows, problem.weights[0].bytes(contiguous))
        x = (self.block_k, tiling.x_rows, problem.x.bytes(self.block_k))
        return LaunchShape(
            columns=uniform(problem.n, split.rows),
            rows=uniform(problem.m, self.tokens),
            cluster=split.ranks,
            clusters=tiling.items if all_at_once else min(tiling.items, alone),
            shared_bytes=tiling.shared_bytes,
            boxes={"x": x, "w_first": weight, "w_second": weight},
            integers={
                "m": problem.m,
                "n": problem.n,
                "k": problem.k,
                "out_stride": problem.out.stride,
                "rows": split.rows,
                "stages": tiling.stages,
            },
        )


_Kind = TypeVar("_Kind", bound=Variant)


def smallest_fitting(kernels: Sequence[_Kind], m: int) -> _Kind:
    """Find the kernel whose cluster has the fewest tokens that hold M, or else the most."""
    by_tokens = sorted(kernels, key=lambda kernel: kernel.cluster_tokens)
    return next((kernel for kernel in by_tokens if kernel.cluster_tokens >= m), by_tokens[-1])


def ctas_per_sm_options(problem: Problem) -> tuple[int, ...]:
    """List numbers of CTAs that an SM's shared memory may have room for, the best first.

    Two, where a kernel is so short that starting beside the one ahead matters more than stages. The
    two products of an MLP agree (as n * k does): CTAs of half the shared memory that come behind
    such as take it all gather by twos on the SMs that are free first.
    """
    short = problem.n * problem.k <= SHORT and problem.m <= SHORT_TOKENS
    return (2, 1) if short else (1,)


def _x_boxes(problem: Problem) -> int:
    """Count boxes of X in a step of K, beside two of weights: gate and up, or one after one."""
    return 1 if problem.gated else 2


def _row_granule(problem: Problem) -> int:
    """Divisor of the rows of a tile: along N, TMA's boxes begin at multiples of them."""
    return 1 if problem.layout is Layout.K else problem.weights[0].granule


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
