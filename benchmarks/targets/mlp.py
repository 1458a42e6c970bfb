"""Targets of the suite `mlp`: the whole MLP against the best that is not fused."""

from __future__ import annotations

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import UNFUSED_MLP, speed
from cuswiglu.bench.suites import SUITES

from .base import Limits, Target, mean, present


def targets(record: Record) -> list[Target]:
    """Judge a record of whole MLPs."""
    found, of = speed(record, "auto", UNFUSED_MLP), len(SUITES["mlp"].cells)
    name = f"whole MLP against {present(record, UNFUSED_MLP)}"
    return mean(name, found, Limits(1.08, 1.15), of)
