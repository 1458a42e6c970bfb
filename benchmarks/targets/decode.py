"""Targets of the suite `decode`: few tokens, M up to `FEW`, and above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cuswiglu.bench.cells import MODELS, Cell
from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import UNFUSED_MLP, speed, worst
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.decode import BARE, GATE_UP, MLP, shares

from .base import Limits, Target, among, lowest, mean, percent, present

#: Token counts up to which gate and up are bound by memory alone.
FEW = 64
_CELLS = SUITES["decode"].cells
#: Models -> what share of the copy's bandwidth they shall reach.
_SHARES = {
    "7B to 72B": (("7b", "14b", "32b", "72b"), Limits(0.92, 0.97, percent)),
    "0.5B and 1.5B": (("0.5b", "1.5b"), Limits(0.70, 0.85, percent)),
}


def targets(record: Record) -> list[Target]:
    """Judge a record of few tokens."""
    few, more = _few(), [cell for cell in _CELLS if cell.m > FEW]
    bare, whole = speed(record, GATE_UP, [BARE]), speed(record, MLP, UNFUSED_MLP)
    name, against = "gate and up against cuBLAS's bare GEMM", present(record, UNFUSED_MLP)
    one = [cell for cell in few if (cell.model, cell.m) == ("0.5b", 1)]
    return [
        *mean(f"{name}, M <= {FEW}", among(bare, few), Limits(1.08, 1.15), len(few)),
        *lowest("its worst cell", among(bare, few), Limits(0.98, 1.02), len(few)),
        *_bandwidth(record),
        *mean(
            f"whole MLP against {against}, M <= {FEW}",
            among(whole, few),
            Limits(1.18, 1.28),
            len(few),
        ),
        *lowest("the same, 0.5B at M = 1", among(whole, one), Limits(1.5, 2.0), 1),
        *lowest(f"{name}, M > {FEW}, worst cell", among(bare, more), Limits(0.97, 1.00), len(more)),
    ]


def _bandwidth(record: Record) -> list[Target]:
    """Judge the means of bandwidth, and tell the worst cells beside."""
    found = []
    for whose, (models, limits) in _SHARES.items():
        cells = _few(models)
        ratios = among(shares(record), cells)
        name = f"bandwidth of gate and up over a copy's, M <= {FEW}, {whose}"
        for target in mean(name, ratios, limits, len(cells)):
            low = worst(ratios)
            value = f"{target.value}, worst {low.value:.1%} ({low.cell})"
            found.append(replace(target, value=value))
    return found


def _few(models: Sequence[str] = MODELS) -> list[Cell]:
    """Select the cells of few tokens, of some models."""
    return [cell for cell in _CELLS if cell.m <= FEW and cell.model in models]
