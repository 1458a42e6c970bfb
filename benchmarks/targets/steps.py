"""Targets of the suite `steps`: time does not fall as M grows; M just above a tile's edge."""

from __future__ import annotations

from cuswiglu.bench.cells import cell
from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import speed
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.steps import AUTO, BARE, MODEL, STEP, growths

from .base import Limits, Target, among, lowest

#: Just above whole tiles of 128 tokens: most of one more tile would be padding.
_JUST_ABOVE = (129, 137, 257, 265)


def targets(record: Record) -> list[Target]:
    """Judge a record of growing M."""
    just_above = [cell(MODEL, m) for m in _JUST_ABOVE]
    bare = among(speed(record, AUTO, [BARE]), just_above)
    tokens = ", ".join(map(str, _JUST_ABOVE))
    return [
        *lowest(
            f"time of {STEP} more tokens over auto's, lowest",
            growths(record),
            Limits(0.97),
            len(SUITES["steps"].cells),
        ),
        *lowest(
            f"auto against cuBLAS's bare GEMM at M = {tokens}, worst cell",
            bare,
            Limits(0.92, 0.97),
            len(just_above),
        ),
    ]
