"""Columns of the table of cells, of which each suite makes its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..record import CellRecord, Record
from . import figures


@dataclass(frozen=True)
class Column:
    """A column of the table of cells: heading, width, and what stands in it.

    `text` takes the record and one of its cells.
    """

    heading: str
    width: int
    text: Callable[[Record, CellRecord], str]


#: First columns of every suite.
CELL = (
    Column("model", 6, lambda record, row: row.cell.model),
    Column("M", 5, lambda record, row: str(row.cell.m)),
)


def speed(heading: str, *names: str, of: str = "auto") -> Column:
    """Tell how many times as fast as the fastest of these one of ours is."""

    def text(record: Record, row: CellRecord) -> str:
        ours, theirs = row.us(of), row.us(*names)
        return f"{theirs / ours:.3f}" if ours and theirs else _untimed(row, *names)

    return Column(heading, max(7, len(heading)), text)


def time(
    name: str, heading: str = "", form: str = "{:.1f}", *, calls: int = 1, width: int = 6
) -> Column:
    """Tell the microseconds of so many calls."""
    heading = heading or name

    def text(record: Record, row: CellRecord) -> str:
        microseconds = row.us(name)
        return form.format(microseconds * calls) if microseconds else _untimed(row, name)

    return Column(heading, max(width, len(heading)), text)


def _untimed(row: CellRecord, *names: str) -> str:
    """Tell why there is no figure: all of these failed, or there is nothing to be said of them."""
    tried = any(name in row.outcomes for name in names)
    return "failed" if tried and not row.us(*names) else "-"


def kernel(name: str, width: int = 31) -> Column:
    """Tell the kernel that was chosen."""

    def text(record: Record, row: CellRecord) -> str:
        return row.outcomes[name].choice if name in row.outcomes else ""

    return Column("its kernel", width, text)


def times(heading: str, one: str, other: str) -> Column:
    """Tell how many times another contender's time one takes."""

    def value(record: Record, row: CellRecord) -> float | None:
        time, unit = row.us(one), row.us(other)
        return time / unit if time and unit else None

    return figure(heading, value, "{:.2f}")


def figure(
    heading: str, value: Callable[[Record, CellRecord], float | None], form: str, width: int = 6
) -> Column:
    """Tell a figure, or a dash where there is none."""

    def text(record: Record, row: CellRecord) -> str:
        found = value(record, row)
        return "-" if found is None else form.format(found)

    return Column(heading, max(width, len(heading)), text)


def of_best_variant() -> Column:
    """Tell auto's speed over our fastest variant's."""
    value = figures.of_best_variant
    return figure("of best", lambda record, row: value(row), "{:.3f}", width=7)


def of_peak(*, whole_mlp: bool = False) -> Column:
    """Tell auto's share of the peak."""

    def value(record: Record, row: CellRecord) -> float | None:
        return figures.peak_share(row, "auto", whole_mlp=whole_mlp)

    return figure("of peak", value, "{:.1%}", width=7)
