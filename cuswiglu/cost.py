"""The cost model: how long a kernel would take for a problem, in microseconds on an H200.

A launch is waves of tiles. A tile takes a time per step of K, which tensor cores or shared memory
bound and which was measured for each instance where it could be, and a time of its own for the
epilogue that the next tile does not hide. Only the order of the estimates matters, so the same
model serves other Hopper GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .problem import Problem
from .variant import Variant

# Of one Hopper SM: the datasheet's dense BF16 rate of 989.5 TFLOP/s on 132 SMs at 1.83 GHz.
FLOPS_PER_CYCLE = 4096
# Shared memory gives and takes 128 bytes a cycle.
SHARED_BYTES_PER_CYCLE = 128
# What the power limit leaves of the clock in long runs, measured on an H200.
CYCLES_PER_US = 1450.0
# Launch, first loads and last stores, partly hidden behind the kernel ahead.
LAUNCH_US = 3.0
# A tile of half the rows takes more than half the time: its products read as many weights.
HALF_TILE = 0.66


@dataclass(frozen=True)
class Rates:
    """Measured speed of an instance: microseconds a step of K, and a tile besides."""

    step_us: float
    tile_us: float


@dataclass(frozen=True)
class Estimate:
    """What the model says of a kernel: `waves` counts tiles one CTA computes, halves as less."""

    kernel: Variant
    clusters: int
    resident: int
    waves: float
    us: float

    @property
    def evenness(self) -> float:
        """Share of the launch's tile slots that hold a tile: 1 where every wave is full."""
        return self.clusters / (self.waves * self.resident)


def analytic_rates(kernel: Variant) -> Rates:
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


def waves(kernel: Variant, m: int, n: int, multiprocessors: int) -> float:
    """Tiles that the busiest CTA computes one after another, a half tile as `HALF_TILE`."""
    clusters = kernel.clusters(m, n)
    resident = max(1, multiprocessors // kernel.cluster_size)
    whole = kernel.whole_clusters(clusters, resident)
    if whole < clusters:
        return whole // resident + HALF_TILE
    return float(-(-whole // resident))


def estimate(
    kernel: Variant, problem: Problem, multiprocessors: int, measured: Mapping[str, Rates]
) -> Estimate:
    """The time of one launch on a device of so many SMs."""
    count = waves(kernel, problem.m, problem.n, multiprocessors)
    rates = measured.get(kernel.name) or analytic_rates(kernel)
    k_tiles = -(-problem.k // kernel.block_k)
    us = LAUNCH_US + count * (k_tiles * rates.step_us + rates.tile_us)
    resident = max(1, multiprocessors // kernel.cluster_size)
    return Estimate(kernel, kernel.clusters(problem.m, problem.n), resident, count, us)
