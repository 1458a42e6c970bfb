"""Targets of the suite `lengths`: M that no tile divides."""

from __future__ import annotations

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import UNFUSED_MLP, speed
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.lengths import AUTO, BARE, MLP, behind_speeds

from .base import Limits, Target, lowest, mean, present

_ALL = len(SUITES["lengths"].cells)


def targets(record: Record) -> list[Target]:
    """Judge a record of odd lengths."""
    bare, behind = speed(record, AUTO, [BARE]), behind_speeds(record)
    whole, name = speed(record, MLP, UNFUSED_MLP), "auto against cuBLAS's bare GEMM"
    return [
        *mean(f"{name}, back to back", bare, Limits(1.01, 1.08), _ALL),
        *lowest("its worst cell", bare, Limits(0.90, 0.97), _ALL),
        *mean(f"{name}, behind a kernel that writes x", behind, Limits(0.97, 1.05), _ALL),
        *lowest("its worst cell", behind, Limits(0.86, 0.95), _ALL),
        *mean(f"whole MLP against {present(record, UNFUSED_MLP)}", whole, Limits(1.10, 1.20), _ALL),
        *lowest("its worst cell", whole, Limits(0.97, 1.00), _ALL),
    ]
