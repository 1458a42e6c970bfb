"""Common ground of all kernels' cost models: measured rates, and loading the weights.

Only the order of estimates matters, so that a model fitted to an H200 serves other Hopper GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import Problem

# Estimates beyond this factor of the cheapest are not worth measuring.
PROMISING = 1.35
LOAD_RATE = 35_650.0  # bytes that an SM loads in a microsecond


@dataclass(frozen=True)
class Rates:
    """Measured speed of a variant: microseconds a step of K, and a tile besides."""

    step_us: float
    tile_us: float


def loads_us(problem: Problem, multiprocessors: int) -> float:
    """Microseconds that all SMs take to load the weights."""
    elements = (2 if problem.gated else 1) * problem.n * problem.k
    return problem.weights[0].bytes(elements) / (LOAD_RATE * multiprocessors)
