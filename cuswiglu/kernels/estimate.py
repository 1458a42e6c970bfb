"""Common ground of all kernels' cost models: measured rates, and loading the weights.

Only the order of estimates matters, so that a model fitted to an H200 serves other Hopper GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..problem import Problem

# What bounds a kernel of tiles besides its products, each alone: fitted, with the rates of the
# kernels and how the bounds hide each other, to 1,760 launches of Qwen-2.5's shapes on an H200.
WEIGHTS_RATE = 7.08e6  # bytes of weights a microsecond
L2_RATE = 1.938e7  # bytes that all SMs load
FLOPS_RATE = 9.42e8  # what the power limit leaves
# Estimates beyond this factor of the cheapest are not worth measuring.
PROMISING = 1.35
LOAD_RATE = 35_650.0  # bytes that an SM loads in a microsecond


@dataclass(frozen=True)
class Rates:
    """Measured speed of a variant: microseconds a step of K, and a tile besides."""

    step_us: float
    tile_us: float


@dataclass(frozen=True)
class Work:
    """What a launch of tiles does besides its products.

    Attributes
    ----------
    weight_bytes : float
        Of weights, from memory.
    l2_bytes : float
        Loaded by all SMs, if all have as much to do as the busiest.
    flops : float
        Of all tiles, whole ones.
    hiding : float
        The power of the mean of all bounds: 1 if none hid another, large if all did.
    """

    weight_bytes: float
    l2_bytes: float
    flops: float
    hiding: float

    def _others(self) -> float:
        bounds = (
            self.weight_bytes / WEIGHTS_RATE,
            self.l2_bytes / L2_RATE,
            self.flops / FLOPS_RATE,
        )
        return math.fsum(bound**self.hiding for bound in bounds)

    def microseconds(self, products: float) -> float:
        """Estimate how long it takes with products that take so long alone (microseconds)."""
        return float((products**self.hiding + self._others()) ** (1 / self.hiding))

    def products(self, microseconds: float) -> float:
        """Find the products' own time where all takes so long; 0 if the rest does."""
        rest = microseconds**self.hiding - self._others()
        return float(max(rest, 0.0) ** (1 / self.hiding))


def loads_us(problem: Problem, multiprocessors: int) -> float:
    """Microseconds that all SMs take to load the weights."""
    elements = (2 if problem.gated else 1) * problem.n * problem.k
    return problem.weights[0].bytes(elements) / (LOAD_RATE * multiprocessors)
