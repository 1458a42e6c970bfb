"""What a record comes to, as rich tables: against each contender, marks, claims, instances."""

from __future__ import annotations

from typing import Any

from . import claims, figures, marks
from .record import Record

_COLOURS = {"aim": "green", "must": "yellow", "missed": "red"}
_VERDICTS = {"aim": "pass, aim reached", "must": "pass", "missed": "FAIL"}


def rich_modules() -> Any:
    """rich, with what is used of it loaded.

    Raises
    ------
    ImportError
    """
    try:
        import rich.console
        import rich.markup
        import rich.table
    except ImportError as error:
        raise ImportError("the benchmark needs rich: pip install 'cuswiglu[cli]'") from error
    return rich


def contenders_table(record: Record) -> Any:
    """Speed of auto against every contender: geometric mean, worst and best cell."""
    rich = rich_modules()
    table = rich.table.Table("auto against", "mean", "worst cell", "best cell", "cells", box=None)
    names = {
        name: (name,)
        for row in record.cells
        for name, outcome in row.outcomes.items()
        if name != "auto" and not outcome.family
    }
    groups: dict[str, tuple[str, ...]] = dict(names)
    if set(figures.QUACK) <= set(names):
        groups["the better quack"] = figures.QUACK
    lines = {label: figures.speed(record, "auto", group) for label, group in groups.items()}
    lines["our best instance"] = figures.against_best_instance(record)
    for label, ratios in lines.items():
        if ratios:
            low, high = figures.worst(ratios), figures.best(ratios)
            table.add_row(
                label,
                f"{figures.geomean(ratio.value for ratio in ratios):.3f}",
                f"{low.value:.3f} ({low.cell})",
                f"{high.value:.3f} ({high.cell})",
                str(len(ratios)),
            )
    return table


def shows_table(record: Record) -> Any:
    """The marks, with pass or fail."""
    rich = rich_modules()
    table = rich.table.Table("figure", "value", "must", "aim", "", "cells", box=None)
    for figure in marks.marks(record):
        verdict = _VERDICTS[figure.met] + (", so far" if figure.partial else "")
        table.add_row(
            figure.name,
            figure.value,
            figure.must,
            figure.aim,
            f"[{_COLOURS[figure.met]}]{verdict}[/]",
            f"{figure.cells}/{figure.of}",
        )
    return table


def instances_table(record: Record) -> Any:
    """Our instances: cells won, and speed against the best instance of each cell."""
    rich = rich_modules()
    table = rich.table.Table("instance", "cells won", "of the best, mean", "at best", box=None)
    ratios: dict[str, list[float]] = {}
    for row in record.cells:
        found = figures.best_instance(row)
        for name, outcome in row.instances().items():
            if found and outcome.microseconds:
                ratios.setdefault(name, []).append(found[1] / outcome.microseconds)
    for name, values in sorted(ratios.items(), key=lambda item: -figures.geomean(item[1])):
        won = sum(value == 1 for value in values)
        mean = figures.geomean(values)
        table.add_row(name, str(won), f"{mean:.3f}", f"{max(values):.3f}")
    return table


def claims_table(record: Record) -> Any:
    """The paper's claims beside ours."""
    rich = rich_modules()
    table = rich.table.Table("claim", "paper (H100)", "here", "how", box=None)
    for claim in claims.claims(record):
        cells = (claim.what, claim.paper, claim.ours, claim.note)
        table.add_row(*(rich.markup.escape(text) for text in cells))
    return table


def cell_claims_table(record: Record) -> Any:
    """The claims that are made of single cells."""
    rich = rich_modules()
    headings = ["model", "M", "over eager", "won by", "of peak"]
    gate_up = record.suite != "mlp"
    if gate_up:
        headings += ["FLOP/B before", "after", "fusion eff."]
    headings += ["compile/eager", "off 1%: auto", "eager"]
    table = rich.table.Table(*headings, box=None)
    for row in record.cells:
        one = claims.of_cell(row, record.suite)
        cells = [one.cell.model, str(one.cell.m), _or_dash(one.speedup, "{:.2f}x")]
        cells += [one.winner or "-", _or_dash(one.utilisation, "{:.1%}")]
        if gate_up:
            cells += [f"{one.before:.0f}", f"{one.after:.0f}"]
            cells.append(_or_dash(one.fusion_efficiency, "{:.1%}"))
        cells += [_or_dash(one.compile, "{:.2f}")]
        cells += [_or_dash(one.off, "{:.3%}"), _or_dash(one.eager_off, "{:.3%}")]
        table.add_row(*cells)
    return table


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
