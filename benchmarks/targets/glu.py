"""Targets of the suite `glu`: many rows and small K, in JAX."""

from __future__ import annotations

from cuswiglu.bench.contenders import _tokamax
from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import speed
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.glu import OURS, over_floors

from .base import Limits, Target, highest, hundredths, lowest, mean

_CELLS = SUITES["glu"].cells
#: Model and rows of a cell -> how much longer than the floor it may take.
_FLOORS = {
    ("128x512", 1_048_576): Limits(1.45, 1.20, hundredths, at_most=True),
    ("64x128", 1_048_576): Limits(1.35, 1.15, hundredths, at_most=True),
}


def targets(record: Record) -> list[Target]:
    """Judge a record of gated linear units."""
    tokamax = speed(record, OURS, [_tokamax.NAME])
    found = [
        *mean("cuswiglu.jax against tokamax", tokamax, Limits(1.6, 1.8), len(_CELLS)),
        *lowest("its worst cell", tokamax, Limits(1.2, 1.3), len(_CELLS)),
    ]
    for one in over_floors(record, OURS):
        limits = _FLOORS.get((one.cell.model, one.cell.m))
        if limits:
            name = f"time over the floor, {one.cell.m} rows, {one.cell.model}"
            found += highest(name, [one], limits, 1)
    return found
