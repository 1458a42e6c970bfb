"""The report in text: a line for each case, a line for each contender, and the targets."""

from __future__ import annotations

from ..bench.cells import Cell
from ..testing.numerics import Accuracy
from .distributions import DISTRIBUTIONS
from .report import LEAST_WITHIN_ULP, MOST_OFF, MOST_OFF_OF_EAGER, CaseReport, Report

_LINE = "{:<10} {:<26} {:>10} {:>10} {:>10} {:>10}  {}"
_TOTAL = "{:<40} {:>10} {:>10} {:>10} {:>10}  {}"
_SHOWN = 20  # missed targets


def legend(report: Report) -> list[str]:
    """Tell what is checked, and what is missing."""
    lines = [f"{name}: {what}" for name, what in DISTRIBUTIONS.items()]
    lines += [f"missing: {name}: {why}" for name, why in report.missing.items()]
    return [
        *lines,
        "off: elements that differ from FP64 by more than 1%; floored: of FP64 or of 2^-8 of the "
        "RMS, whichever is more; ulp: elements at most one BF16 ulp from FP64 rounded once.",
        "Of ours the worst of all kernels.",
    ]


def heading() -> str:
    """Write the headings of the cases' columns."""
    return _LINE.format("inputs", "cell", "eager off", "ours off", "floored", "ulp", "targets")


def line(row: CaseReport) -> str:
    """Write a case: eager, and the worst of ours in each column."""
    eager, ours = row.outcomes.get(row.eager), _ours(row)
    off = f"{eager.measured.off:.4%}" if eager is not None and eager.measured else "-"
    missed = row.missed()
    return _LINE.format(
        row.case.distribution,
        _cell(row.case.cell),
        off,
        *_worst(ours),
        "pass" if not missed else f"FAIL ({len(missed)})",
    )


def _cell(cell: Cell) -> str:
    return f"{cell.model} M={cell.m}"


def _ours(row: CaseReport) -> list[Accuracy]:
    found = (outcome for outcome in row.outcomes.values() if outcome.ours)
    return [outcome.measured for outcome in found if outcome.measured is not None]


def _worst(found: list[Accuracy]) -> tuple[str, str, str]:
    if not found:
        return "failed", "", ""
    return (
        f"{max(one.off for one in found):.4%}",
        f"{max(one.off_floored for one in found):.2g}",
        f"{min(one.within_ulp for one in found):.4%}",
    )


def contenders(report: Report) -> list[str]:
    """Write a line for each contender: its worst case in each column."""
    lines = [_TOTAL.format("worst of all cases", "off", "floored", "ulp", "error", "worst element")]
    names = dict.fromkeys(name for row in report.cases for name in row.outcomes)
    for name in names:
        rows = [row for row in report.cases if name in row.outcomes]
        measured = [
            (outcome.measured, row)
            for row in rows
            if (outcome := row.outcomes[name]).measured is not None
        ]
        failed = len(rows) - len(measured)
        note = f"{failed} failed" if failed else ""
        if measured:
            one, row = max(measured, key=lambda pair: pair[0].worst.error)
            bad = one.worst
            note = (
                f"{note}{', ' if note else ''}{bad.found:.6g} for {bad.expected:.6g} at "
                f"[{bad.row}, {bad.column}] of {row.case}: gate {bad.gate:.4g}, up {bad.up:.4g}"
            )
        found = [one for one, _ in measured]
        error = f"{max(one.worst.error for one in found):.3%}" if found else ""
        lines.append(_TOTAL.format(name, *_worst(found), error, note))
    return lines


def targets(report: Report) -> list[str]:
    """Write the targets, and where they are missed."""
    missed = report.missed()
    stands_for = sorted({row.eager for row in report.cases})
    lines = [
        f"targets, of {len(report.cases)} cases: at most {MOST_OFF_OF_EAGER:g} of what is off in "
        f"{' or '.join(stands_for)}, and at most {MOST_OFF:.2%}; none floored; at least "
        f"{LEAST_WITHIN_ULP:.1%} within one ulp: {'FAIL' if missed else 'pass'}"
    ]
    lines += [f"  {text}" for text in missed[:_SHOWN]]
    if len(missed) > _SHOWN:
        lines.append(f"  and {len(missed) - _SHOWN} more")
    return lines
