"""The cost model: how long a kernel would take for a problem, in microseconds on an H200.

A launch is waves of tiles. A tile takes a time per step of K, which tensor cores or shared memory
bound and which was measured for each instance where it could be, and a time of its own for the
epilogue that the next tile does not hide. With few tokens the weights' bytes take longer. Only the
order of the estimates matters, so the same model serves other Hopper GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..kernels import decode, tile_columns
from ..kernels.decode import Split
from ..kernels.decode_variant import DecodeVariant
from ..kernels.tile import TileVariant
from ..kernels.variant import Variant
from ..problem import Problem

# Of one Hopper SM: the datasheet's dense BF16 rate of 989.5 TFLOP/s on 132 SMs at 1.83 GHz.
FLOPS_PER_CYCLE = 4096
# Shared memory gives and takes 128 bytes a cycle.
SHARED_BYTES_PER_CYCLE = 128
# What the power limit leaves of the clock in long runs, measured on an H200.
CYCLES_PER_US = 1450.0
# Launch, first loads and last stores, partly hidden behind the kernel ahead.
LAUNCH_US = 3.0


@dataclass(frozen=True)
class Rates:
    """Measured speed of an instance: microseconds a step of K, and a tile besides."""

    step_us: float
    tile_us: float


@dataclass(frozen=True)
class Estimate:
    """What the model says of a kernel.

    `waves` counts the full tiles that the busiest cluster's work amounts to; `evenness` is the
    share of all clusters' time that goes into the result: 1 where every wave is full. `split` is of
    decode kernels.
    """

    kernel: Variant
    clusters: int
    resident: int
    waves: float
    evenness: float
    us: float
    split: Split | None = None

    @property
    def tiles(self) -> int:
        """Of the result."""
        return self.clusters * self.kernel.tiles_a_cluster


def analytic_rates(kernel: TileVariant) -> Rates:
    """Rates from the tile alone, for an instance that was never measured."""
    weights = 2 if kernel.gated else 1
    columns = weights * kernel.block_n
    passes = 1
    if kernel.family == "sync":
        columns, passes = kernel.block_n, 2
    tensor = 2 * kernel.block_m * columns * kernel.block_k / FLOPS_PER_CYCLE
    # Each 64-row WGMMA reads its rows of X and all columns of the weights; TMA writes a stage.
    row_blocks = kernel.block_m // 64
    read = kernel.block_m + row_blocks * columns
    written = kernel.block_m + columns
    shared = 2 * kernel.block_k * (read + written) / SHARED_BYTES_PER_CYCLE
    step = passes * max(tensor, shared) / CYCLES_PER_US
    # Activation and stores of a tile: hidden in pingpong, but for the last.
    epilogue = 0.0 if kernel.schedule == "pingpong" else 1.5
    return Rates(step, epilogue + 0.2)


def resident(kernel: TileVariant, multiprocessors: int) -> int:
    """How many clusters run at once, as far as the number of SMs tells."""
    return max(1, multiprocessors // kernel.cluster_m)


def waves(kernel: TileVariant, m: int, n: int, major: str, multiprocessors: int) -> float:
    """Work of the busiest cluster, in tiles of full width."""
    return _busiest(kernel, m, n, major, resident(kernel, multiprocessors))[1]


def _busiest(kernel: TileVariant, m: int, n: int, major: str, at_once: int) -> tuple[int, float]:
    """Clusters of tiles, and the work of the busiest of those that run at once."""
    rows, cut = kernel.rows(m), kernel.columns(m, n, major, at_once)
    return rows * cut.count, tile_columns.busiest(cut, rows, at_once, kernel.block_n)


def estimate(
    kernel: Variant, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
) -> Estimate | None:
    """The time of one launch on a device of so many SMs; None if there is no way to cut it."""
    if isinstance(kernel, DecodeVariant):
        return _decode(kernel, problem, multiprocessors)
    assert isinstance(kernel, TileVariant)
    at_once = resident(kernel, multiprocessors)
    clusters, count = _busiest(kernel, problem.m, problem.n, problem.major, at_once)
    rates = measured.get(kernel.name) or analytic_rates(kernel)
    k_tiles = -(-problem.k // kernel.block_k)
    products = count * (k_tiles * rates.step_us + rates.tile_us)
    us = LAUNCH_US + math.hypot(products, decode.loads_us(problem, multiprocessors))
    evenness = kernel.rows(problem.m) * problem.n / (count * at_once * kernel.block_n)
    return Estimate(kernel, clusters, at_once, count, evenness, us)


def _decode(kernel: DecodeVariant, problem: Problem, multiprocessors: int) -> Estimate | None:
    """The same of the cheapest split of a decode kernel."""
    found = decode.ranked(kernel, problem, multiprocessors)
    if not found:
        return None
    us, split = found[0]
    laid = decode.layout(kernel, problem, split)
    assert laid is not None
    at_once = decode.clusters(split, multiprocessors)
    rounds = -(-laid.items // at_once)
    evenness = laid.items / (rounds * at_once)
    return Estimate(kernel, laid.items, at_once, rounds, evenness, us, split)
