"""Targets of the suite `activations`: what others take over SiLU, in their worst cells."""

from __future__ import annotations

from dataclasses import replace

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import geomean, speed
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.activations import COSTS

from .base import Limits, Target, highest


def targets(record: Record) -> list[Target]:
    """Judge a record of activations; the mean over the cells is told beside."""
    found, of = [], len(SUITES["activations"].cells)
    for name in COSTS:
        over = speed(record, "silu", [name])
        what = f"time of {name} over silu's, worst cell"
        for target in highest(what, over, Limits(1.01, at_most=True), of):
            mean = geomean(one.value for one in over)
            found.append(replace(target, value=f"{target.value}, mean {mean:.3f}"))
    return found
