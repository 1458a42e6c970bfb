"""Suite `steps`: how time grows with M, in steps of 8."""

from __future__ import annotations

from ..cells import cell
from ..contenders import Contender, Found, _own
from ..record import CellRecord, Record
from ..report import columns, figures, summaries
from .base import Suite

MODEL, STEP = "3b", 8


def ours() -> Found:
    """Find gate and up beside cuBLAS's product."""
    return Found([Contender("auto", _own.swiglu), Contender("bare", _own.bare, "product")])


def growth(record: Record, row: CellRecord) -> float | None:
    """Divide a cell's time by that of `STEP` tokens fewer in the same session."""
    before = cell(row.cell.model, row.cell.m - STEP)
    for other in record.cells:
        if (other.cell, other.session) == (before, row.session):
            fewer, time = other.us("auto"), row.us("auto")
            return time / fewer if fewer and time else None
    return None


def growths(record: Record) -> list[figures.Ratio]:
    """Collect `growth` of every cell that has one."""
    return figures.collected(record, lambda row: growth(record, row))


SUITE = Suite(
    name="steps",
    about="gate and up of one model as M grows in steps of 8, beside cuBLAS's bare product",
    cells=tuple(cell(MODEL, m) for m in range(129, 513, STEP)),
    contenders=(ours,),
    columns=(
        *columns.CELL,
        columns.time("auto", "auto us", width=9),
        columns.kernel("auto"),
        columns.figure(f"of M - {STEP}", growth, "{:.3f}"),
        columns.speed("bare", "bare"),
    ),
    legend=(
        f"auto's time, over that of {STEP} tokens fewer, and its speed against cuBLAS's bare "
        "product"
    ),
    tables={"speed": summaries.auto_table},
)
