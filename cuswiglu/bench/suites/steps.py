"""Suite `steps`: how time grows with M, in steps of 8."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..cells import cell
from ..contenders import Contender, Found, Runner, _own
from ..contenders.inputs import Inputs
from ..record import CellRecord, Record
from ..report import columns, figures, summaries
from .base import Suite

MODEL, STEP = "3b", 8
AUTO, MORE, BARE = "auto", "auto-more", "bare"


def ours() -> Found:
    """Find gate and up, the same of `STEP` more tokens, and cuBLAS's product."""
    return Found(
        [
            Contender(AUTO, _own.swiglu),
            Contender(MORE, _more),
            Contender(BARE, _own.bare, "product"),
        ]
    )


def _more(inputs: Inputs) -> Runner:
    """Call `cuswiglu.swiglu` on x and its first rows once more."""
    m, k = inputs.x.shape
    x = inputs.xp.empty((m + STEP, k), inputs.dtype)
    bits, given = x.view(np.uint16), inputs.x.view(np.uint16)
    bits[:m], bits[m:] = given, given[:STEP]
    return _own.swiglu(replace(inputs, cell=replace(inputs.cell, m=m + STEP), x=x))


def growth(row: CellRecord) -> float | None:
    """Divide the time of `STEP` more tokens by the cell's."""
    more, time = row.us(MORE), row.us(AUTO)
    return more / time if more and time else None


def growths(record: Record) -> list[figures.Ratio]:
    """Collect `growth` of every cell that has one."""
    return figures.collected(record, growth)


SUITE = Suite(
    name="steps",
    about="gate and up as M grows in steps of 8, beside cuBLAS's bare product",
    cells=tuple(cell(MODEL, m) for m in range(129, 513, STEP)),
    contenders=(ours,),
    columns=(
        *columns.CELL,
        columns.time(AUTO, "auto us", width=9),
        columns.kernel(AUTO),
        columns.figure(f"M + {STEP}", lambda record, row: growth(row), "{:.3f}", width=7),
        columns.speed("bare", BARE),
    ),
    legend=(
        f"auto's time, the time of {STEP} more tokens over it, and its speed against cuBLAS's "
        "bare product"
    ),
    tables={"speed": lambda record: summaries.speed_table(record, AUTO, BARE)},
)
