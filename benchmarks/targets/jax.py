"""Targets of the suite `jax`: a jitted stack, each cell's own."""

from __future__ import annotations

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import speed
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.jax import CAPTURED, OURS, PLAIN

from .base import Limits, Target, highest, lowest

#: Token count up to which the weights' bytes bound the time.
FEW = 64


def targets(record: Record) -> list[Target]:
    """Judge a record of stacks."""
    found: list[Target] = []
    for ratio in speed(record, OURS, [PLAIN]):
        limits = Limits(1.4 if ratio.cell.m > FEW else 1.5)
        found += lowest(
            f"a jitted stack against plain JAX's, M = {ratio.cell.m}", [ratio], limits, 1
        )
    name = "time of the jitted stack over the captured one's, worst cell"
    over, of = speed(record, CAPTURED, [OURS]), len(SUITES["jax"].cells)
    return found + highest(name, over, Limits(1.03, at_most=True), of)
