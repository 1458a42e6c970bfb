"""How a decode kernel's work is cut, and what that costs.

Rows of the weights (columns of the result) are cut into tiles, as many of them as make all SMs read
the same bytes. A down projection has few rows: there K is cut too, over the CTAs of a cluster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..problem import ELEMENT_BYTES, TMA_ALIGNMENT, Problem
from .decode_variant import DecodeVariant
from .variant import SHARED_BYTES as ALL_SHARED_BYTES

#: Up to so many tokens a decode kernel may be the fastest: gate and up, one weight.
GATED_TOKENS, PLAIN_TOKENS = 256, 128
SHARED_BYTES = {1: ALL_SHARED_BYTES, 2: 113 << 10}  # of a CTA, where so many are to fit on an SM
ATOM_ROWS = 8  # boxes along K are placed at whole swizzle atoms
SLACK_BYTES = 7 << 10  # the MMA reads whole blocks of rows, behind a box with fewer
SHORT, SHORT_TOKENS = 8_000_000, 32  # weights of a matrix, and tokens
LEAST_ROWS = 8  # fewer in a tile are no faster
FEW = 16  # tokens that a split for any M is chosen for
TILES_AT_LEAST = 3  # counts of tiles a CTA that are tried, from the fewest on
WARPGROUP = 128  # threads
FP32_BYTES = 4
#: Of 132 SMs, those on which clusters of 4 and 8 find room, at one CTA an SM (an H200's driver
#: says 30 and 15 clusters).
CLUSTER_SMS = {1: 132, 2: 132, 4: 120, 8: 120}

# The cost model, fitted to 560 launches of Qwen-2.5's shapes at 1 to 128 tokens on an H200 (its
# choices are within 1.1% of the best split in the mean). Microseconds; bytes each.
RATE = 35_650.0  # bytes an SM loads
STAGE_US = 0.845  # until a stage comes back
STEP_US = 0.0235  # a box of a step, at least, and more by the tokens
LAUNCH_US = {1: 3.2, 2: 2.8}  # with so many CTAs' room on an SM: two overlap
CLUSTER_US = 0.20  # a cluster's sums
SUM_US = 0.30e-3  # each


@dataclass(frozen=True)
class Split:
    """A way to cut the work of a decode kernel.

    Attributes
    ----------
    rows : int
        Of the weights, in a tile.
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


@dataclass(frozen=True)
class Layout:
    """What follows from a split of a problem: tiles, steps and shared memory of a CTA.

    Attributes
    ----------
    items : int
        Tiles of weights times tiles of tokens, for the clusters to take.
    steps : int
        Of K, for the rank with the most.
    stages : int
    shared_bytes : int
    box_rows, x_rows : int
        Of TMA boxes: of weights along N, and of X.
    """

    items: int
    steps: int
    stages: int
    shared_bytes: int
    box_rows: int
    x_rows: int


def layout(kernel: DecodeVariant, problem: Problem, split: Split) -> Layout | None:
    """The layout of a split; None if it cannot be launched."""
    all_steps = -(-problem.k // (kernel.block_k * _x_boxes(problem)))
    most_ranks = 1 if problem.gated else min(all_steps, kernel.max_ranks)
    known = split.ranks in CLUSTER_SMS and split.ctas in SHARED_BYTES
    if not known or split.ranks > most_ranks or split.ctas > kernel.ctas:
        return None
    if not 1 <= split.rows <= kernel.max_rows or split.rows % _granule(problem):
        return None
    steps = -(-all_steps // split.ranks)
    items = -(-problem.n // split.rows) * -(-problem.m // kernel.tokens)
    along_k = problem.major == "k"
    room = _up(split.rows, ATOM_ROWS if along_k else kernel.mma_rows)
    row_bytes = kernel.block_k * ELEMENT_BYTES
    stage_bytes = (2 * room + kernel.tokens * _x_boxes(problem)) * row_bytes
    tail = max(SLACK_BYTES, _sums_bytes(kernel, split))
    stages = (SHARED_BYTES[split.ctas] - kernel.barrier_bytes - tail) // stage_bytes
    # No more than there are steps, in the tiles of one CTA.
    stages = min(stages, kernel.max_stages, steps * items)
    if stages < min(2, steps * items):
        return None
    return Layout(
        items=items,
        steps=steps,
        stages=stages,
        shared_bytes=kernel.barrier_bytes + stages * stage_bytes + tail,
        box_rows=split.rows if along_k else kernel.mma_rows,
        x_rows=min(problem.m, kernel.tokens),
    )


def _x_boxes(problem: Problem) -> int:
    """Of a step of K, beside two boxes of weights: of gate and up, or one behind another."""
    return 1 if problem.gated else 2


def _sums_bytes(kernel: DecodeVariant, split: Split) -> int:
    """What the warpgroups exchange, then sums to be sent in its place; and sums received."""
    exchange = 2 * (kernel.tokens // 4) * WARPGROUP * FP32_BYTES
    if split.ranks == 1:
        return exchange
    share = _up(-(-split.rows // split.ranks), 4)
    sums = split.ranks * kernel.chunk * share * FP32_BYTES
    return max(exchange, sums) + sums


def _granule(problem: Problem) -> int:
    """What the rows of a tile are a multiple of: boxes along N begin at multiples of 16 bytes."""
    return 1 if problem.major == "k" else TMA_ALIGNMENT // ELEMENT_BYTES


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def clusters(split: Split, multiprocessors: int) -> int:
    """Clusters that take items at once."""
    one = max(1, CLUSTER_SMS[split.ranks] * multiprocessors // 132 // split.ranks)
    return max(one, multiprocessors // split.ranks) if split.ctas == 2 else one


def splits(kernel: DecodeVariant, problem: Problem, multiprocessors: int) -> Iterator[Split]:
    """Splits worth trying: every CTA gets the same number of tiles, of as even rows as can be."""
    seen = set()
    for ctas in ctas_per_sm_options(problem):
        for ranks in (1,) if problem.gated else CLUSTER_SMS:
            at_once = clusters(Split(1, ranks, ctas), multiprocessors)
            fewest = -(-problem.n // (at_once * kernel.max_rows))
            for tiles in range(fewest, fewest + TILES_AT_LEAST):
                rows = max(LEAST_ROWS, -(-problem.n // (at_once * tiles)))
                rows = _up(rows, _granule(problem))
                split = Split(rows, ranks, ctas)
                if split not in seen and layout(kernel, problem, split) is not None:
                    seen.add(split)
                    yield split
        if seen:
            return


def ctas_per_sm_options(problem: Problem) -> tuple[int, ...]:
    """For how many CTAs of an SM shared memory is to have room, the best first.

    Two, where a kernel is so short that starting beside the one ahead matters more than stages. The
    two products of an MLP agree (as n * k does): CTAs of half the shared memory that come behind
    such as take it all gather by twos on the SMs that are free first.
    """
    short = problem.n * problem.k <= SHORT and problem.m <= SHORT_TOKENS
    return (2, 1) if short else (1,)


def microseconds(
    kernel: DecodeVariant, problem: Problem, split: Split, multiprocessors: int
) -> float:
    """What the cost model says of a split that can be launched."""
    laid = layout(kernel, problem, split)
    assert laid is not None
    boxes = 2 + _x_boxes(problem)  # of a step
    rounds = -(-laid.items // clusters(split, multiprocessors))
    steps = rounds * laid.steps
    weights = 2 * split.rows * kernel.block_k * ELEMENT_BYTES  # of a step
    of_one = steps * weights / RATE
    loads = max(of_one, loads_us(problem, multiprocessors))
    flight = steps * STAGE_US / max(laid.stages - 0.7, 0.3)
    blocks = -(-split.rows // kernel.mma_rows)
    products = steps * boxes * STEP_US * (1 + blocks * kernel.tokens / 64)
    reduction = 0.0
    if split.ranks > 1:
        tokens = min(problem.m, kernel.tokens)
        reduction = rounds * (CLUSTER_US + SUM_US * tokens * split.rows)
    return LAUNCH_US[split.ctas] + math.hypot(loads, flight, products) + reduction


def loads_us(problem: Problem, multiprocessors: int) -> float:
    """Microseconds that all SMs take to load the weights."""
    weights = 2 if problem.gated else 1
    return weights * problem.n * problem.k * ELEMENT_BYTES / (RATE * multiprocessors)


def ranked(
    kernel: DecodeVariant, problem: Problem, multiprocessors: int
) -> list[tuple[float, Split]]:
    """Estimates of the splits worth trying, cheapest first."""
    found = [
        (microseconds(kernel, problem, split, multiprocessors), split)
        for split in splits(kernel, problem, multiprocessors)
    ]
    return sorted(found, key=lambda pair: (pair[0], dataclasses.astuple(pair[1])))


def for_any_m(kernels: list[DecodeVariant], problem: Problem, multiprocessors: int) -> Split | None:
    """The best split for few tokens of those that every kernel can have, so that M has no say.

    Its `ctas` is what all can have; more do not change the result.
    """
    if not kernels:
        return None
    few = dataclasses.replace(problem, m=FEW)
    for _, split in ranked(smallest_fitting(kernels, FEW), few, multiprocessors):
        alone = dataclasses.replace(split, ctas=1)
        if all(layout(kernel, problem, alone) is not None for kernel in kernels):
            return alone
    return None


def smallest_fitting(kernels: list[DecodeVariant], m: int) -> DecodeVariant:
    """Of decode kernels of one kind, the one for so many tokens."""
    by_tokens = sorted(kernels, key=lambda kernel: kernel.tokens)
    return next((kernel for kernel in by_tokens if kernel.tokens >= m), by_tokens[-1])
