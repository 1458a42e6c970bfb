"""How long cuBLAS takes for a product with one weight: what a kernel of ours has to beat.

In microseconds on an H200, fitted to 229 down projections of Qwen-2.5's models at 70 to 4096
tokens; 7.5% off in the mean.
"""

from __future__ import annotations

from ..problem import Problem

LAUNCH_US = 7.1
FLOPS_RATE, MEMORY_RATE = 7.7e8, 4.33e6  # operations, and bytes, in a microsecond
HIDING = 2.5  # the power of the mean of products and bytes
#: What a kernel of ours saves beside its own time: it starts before the one ahead has ended, and
#: lets the next one do so.
OVERLAP_US = 1.5


def microseconds(problem: Problem) -> float:
    """Estimate cuBLAS's product of a problem with one weight, and what it cannot overlap."""
    m, n, k = problem.m, problem.n, problem.k
    products = 2.0 * m * n * k / FLOPS_RATE
    moved = (
        problem.weights[0].bytes(n * k) + problem.x.bytes(m * k) + problem.out.bytes(m * n)
    ) / MEMORY_RATE
    return LAUNCH_US + float((products**HIDING + moved**HIDING) ** (1 / HIDING)) + OVERLAP_US
