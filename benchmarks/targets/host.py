"""Targets of the suite `host`, in its worst cells."""

from __future__ import annotations

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import speed
from cuswiglu.bench.suites import SUITES

from .base import Limits, Target, highest, hundredths, lowest


def targets(record: Record) -> list[Target]:
    """Judge a record of host times."""
    of = len(SUITES["host"].cells)
    over = speed(record, "bare-launches", ["planned"])
    eager = speed(record, "unplanned", ["torch-eager"])
    limits = Limits(1.6, 1.2, hundredths, at_most=True)
    return [
        *highest("host time of a planned call over its bare launches", over, limits, of),
        *lowest(
            "host time of torch eager's MLP over an unplanned call's", eager, Limits(3.0, 6.0), of
        ),
    ]
