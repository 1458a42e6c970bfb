"""Targets of the suite `paper`: speed of gate and up, selection, and the paper's two kernels."""

from __future__ import annotations

from cuswiglu.bench.record import CellRecord, Record
from cuswiglu.bench.report.figures import (
    PAPER_FAMILIES,
    QUACK,
    against_best_variant,
    speed,
    utilisation,
    winning_family,
    worst,
)
from cuswiglu.bench.suites import SUITES

from .base import Limits, Target, highest, lowest, mean, percent, present

#: One BF16 rounding is 2^-9 of each element at most, so of the norm too; FP32 sums add a little.
ONE_ROUNDING = 1.01 * 2**-9
_ALL = len(SUITES["paper"].cells)


def targets(record: Record) -> list[Target]:
    """Judge a record of gate and up."""
    bare, quack = speed(record, "auto", ["bare"]), speed(record, "auto", QUACK)
    eager, used = speed(record, "auto", ["torch-eager"]), utilisation(record, "auto")
    against = f"auto against {present(record, QUACK)}"
    peak = Limits(0.76, 0.795, percent)
    return [
        *mean("auto against cuBLAS's bare GEMM", bare, Limits(1.085, 1.12), _ALL),
        *lowest("its worst cell", bare, Limits(0.99, 1.00), _ALL),
        *mean(against, quack, Limits(1.02, 1.05), _ALL),
        *lowest("its worst cell", quack, Limits(0.97, 1.00), _ALL),
        *mean("auto against torch eager", eager, Limits(1.37, 1.45), _ALL),
        *highest("best cell against torch eager", eager, Limits(2.0, 2.47), _ALL),
        *highest("best utilisation, of 989.5 TFLOP/s", used, peak, _ALL),
        *_choice(record),
        *_paper_kernels(record),
    ]


def _choice(record: Record) -> list[Target]:
    """Judge selection. Must: 0.97 of the best variant in 26 of 28 cells; aim: in all."""
    ratios = against_best_variant(record)
    if not ratios:
        return []
    good = sum(ratio.value >= 0.97 for ratio in ratios)
    needed = len(ratios) - len(ratios) * 2 // _ALL
    met = "aim" if good == len(ratios) else "must" if good >= needed else "missed"
    low = worst(ratios)
    return [
        Target(
            "auto within 0.97 of the best variant",
            f"{good} of {len(ratios)} cells (worst {low.value:.3f}, {low.cell})",
            f"{needed} of {len(ratios)}",
            "all",
            met,
            len(ratios),
            _ALL,
        )
    ]


def _paper_kernels(record: Record) -> list[Target]:
    """Judge Kernel-1 and Kernel-2. Must: both exact in every cell; aim: each wins somewhere."""
    rows = record.cells
    if not rows:
        return []
    wins = {family: sum(winning_family(row) == family for row in rows) for family in PAPER_FAMILIES}
    exact = {family: sum(_exact(row, family) for row in rows) for family in PAPER_FAMILIES}
    must = all(count == len(rows) for count in exact.values())
    value = "; ".join(
        f"{PAPER_FAMILIES[family]} ({family}) measured and exact in {exact[family]}, "
        f"wins {wins[family]} of {len(rows)}"
        for family in PAPER_FAMILIES
    )
    met = "missed" if not must else "aim" if all(wins.values()) else "must"
    name = "Kernel-1 and Kernel-2"
    return [Target(name, value, "every cell, exact", "each wins", met, len(rows), _ALL)]


def _exact(row: CellRecord, family: str) -> bool:
    """Tell whether a family was timed in a cell, all its results one rounding from FP64."""
    found = [outcome for outcome in row.variants().values() if outcome.family == family]
    return bool(found) and all(
        outcome.relative_error is not None and outcome.relative_error <= ONE_ROUNDING
        for outcome in found
    )
