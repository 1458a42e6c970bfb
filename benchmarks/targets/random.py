"""Targets of the suite `random`: values of M that were drawn, of more than few tokens."""

from __future__ import annotations

from collections.abc import Sequence

from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import QUACK, Ratio, against_best_variant, speed, worst
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.random import MANY

from .base import Limits, Target, among, lowest, mean, percent, present

#: Cells of so many tokens are judged.
_CELLS = [cell for cell in SUITES["random"].cells if cell.m >= MANY]
#: Share of the best variant's speed at which a choice is good.
_GOOD = 0.97


def targets(record: Record) -> list[Target]:
    """Judge a record of drawn values of M."""
    of, many = len(_CELLS), f"M >= {MANY}"
    bare, quack = (among(speed(record, "auto", names), _CELLS) for names in (["bare"], [*QUACK]))
    return [
        *mean(f"auto against cuBLAS's bare GEMM, {many}", bare, Limits(1.04, 1.10), of),
        *lowest("its worst cell", bare, Limits(0.90, 0.97), of),
        *mean(f"auto against {present(record, QUACK)}, {many}", quack, Limits(1.15, 1.25), of),
        *lowest("its worst cell", quack, Limits(0.97, 1.00), of),
        *_choice(among(against_best_variant(record), _CELLS)),
    ]


def _choice(found: Sequence[Ratio]) -> list[Target]:
    """Judge the share of cells whose choice is good."""
    if not found:
        return []
    share = sum(one.value >= _GOOD for one in found) / len(found)
    low = worst(found)
    text = f"{percent(share)} (worst {low.value:.3f}, {low.cell})"
    name = f"cells where auto is within {_GOOD} of the best variant, M >= {MANY}"
    return [Limits(0.95, 0.99, percent).judge(name, share, text, len(found), len(_CELLS))]
