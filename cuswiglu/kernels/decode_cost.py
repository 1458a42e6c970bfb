"""The cost model of decode kernels, in microseconds on an H200.

Fitted to 560 launches of Qwen-2.5's shapes at 1 to 128 tokens (its choices are within 1.1% of the
best split in the mean).
"""

from __future__ import annotations

import math

from ..problem import Problem
from .estimate import LOAD_RATE, loads_us
from .split import Split, Tiling

STAGE_US = 0.845  # until a stage comes back
STEP_US = 0.0235  # a box of a step, at least, and more by the products
LAUNCH_US = {1: 3.2, 2: 2.8}  # with so many CTAs' room on an SM: two overlap
CLUSTER_US = 0.20  # a cluster's sums
SUM_US = 0.30e-3  # each


def microseconds(
    problem: Problem, split: Split, tiling: Tiling, products: float, multiprocessors: int
) -> float:
    """Estimate the time of a launch.

    `products` is the work of the MMAs of a box, in products of 64 rows of weights and 64 tokens.
    """
    rounds = -(-tiling.items // split.clusters(multiprocessors))
    steps = rounds * tiling.steps
    of_one = steps * tiling.weight_bytes / LOAD_RATE
    loads = max(of_one, loads_us(problem, multiprocessors))
    flight = steps * STAGE_US / max(tiling.stages - 0.7, 0.3)
    issue = steps * tiling.boxes * STEP_US * (1 + products)
    reduction = 0.0
    if split.ranks > 1:
        reduction = rounds * (CLUSTER_US + SUM_US * tiling.x_rows * split.rows)
    return LAUNCH_US[split.ctas] + math.hypot(loads, flight, issue) + reduction
