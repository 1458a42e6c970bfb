"""Targets of the suite `random`: selection where nothing was measured."""

from __future__ import annotations

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import against_best_variant, geomean
from cuswiglu.bench.suites import SUITES

from .base import Limits, Target


def targets(record: Record) -> list[Target]:
    """Judge a record of shapes never seen."""
    found, of = against_best_variant(record), len(SUITES["random"].cells)
    if not found:
        return []
    value, limits = geomean(one.value for one in found), Limits(0.93, 0.97)
    name = "auto against the best variant, shapes never seen, mean"
    return [limits.judge(name, value, limits.show(value), len(found), of)]
