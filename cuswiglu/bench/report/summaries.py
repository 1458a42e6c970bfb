"""Summaries of a record as rich tables: against each contender, and our variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..record import Record
from . import figures
from .figures import Ratio


def rich_modules() -> Any:
    """Load rich, with what is used of it.

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


def speed_table(record: Record, name: str, *others: str) -> Any:
    """Compare a contender with each of these: geometric mean, worst and best cell."""
    return ratios_table(name, {one: figures.speed(record, name, [one]) for one in others})


def auto_table(record: Record) -> Any:
    """Compare auto with each contender, with the better QuACK and with our fastest variant."""
    outcomes = [item for row in record.cells for item in row.outcomes.items()]
    others = dict.fromkeys(name for name, one in outcomes if name != "auto" and not one.family)
    ratios = {name: figures.speed(record, "auto", [name]) for name in others}
    if set(figures.QUACK) <= set(others):
        ratios["the better quack"] = figures.speed(record, "auto", figures.QUACK)
    ratios["our best variant"] = figures.against_best_variant(record)
    return ratios_table("auto", ratios)


def ratios_table(name: str, ratios: Mapping[str, Sequence[Ratio]]) -> Any:
    """Tabulate speeds of a contender: geometric mean, worst and best cell of each."""
    columns = f"{name} against", "mean", "worst cell", "best cell", "cells"
    table = rich_modules().table.Table(*columns, box=None)
    for label, found in ratios.items():
        if found:
            low, high = figures.worst(found), figures.best(found)
            table.add_row(
                label,
                f"{figures.geomean(ratio.value for ratio in found):.3f}",
                f"{low.value:.3f} ({low.cell})",
                f"{high.value:.3f} ({high.cell})",
                str(len(found)),
            )
    return table


def variants_table(record: Record) -> Any:
    """Tabulate our variants: cells won, and speed against the fastest of each cell."""
    rich = rich_modules()
    table = rich.table.Table("variant", "cells won", "of the best, mean", "at best", box=None)
    ratios: dict[str, list[float]] = {}
    for row in record.cells:
        found = figures.best_variant(row)
        for name, outcome in row.variants().items():
            if found and outcome.microseconds:
                ratios.setdefault(name, []).append(found[1] / outcome.microseconds)
    for name, values in sorted(ratios.items(), key=lambda item: -figures.geomean(item[1])):
        won = sum(value == 1 for value in values)
        mean = figures.geomean(values)
        table.add_row(name, str(won), f"{mean:.3f}", f"{max(values):.3f}")
    return table
