"""Suite `lengths`: M as prompts come, which no tile divides; alone and behind what writes x."""

from __future__ import annotations

import functools

from ..cells import cell
from ..contenders import Contender, Found, _behind, _own, _torch
from ..record import CellRecord, Record
from ..report import columns, figures, summaries
from ..run.measure import measure
from ..run.run import Method
from .base import Suite

MODELS = ("0.5b", "3b", "7b")
LENGTHS = (129, 144, 192, 200, 257, 291, 312, 385, 450, 520, 641, 700, 900, 1000)
AUTO, BARE, MLP = "auto", "bare", "mlp"


def ours() -> Found:
    """Find gate and up beside cuBLAS's product, both also behind a writer of x; and the MLP."""
    auto, bare = Contender(AUTO, _own.swiglu), Contender(BARE, _own.bare, "product")
    behind = [_behind.behind(auto, "hidden"), _behind.behind(bare, "product"), _behind.writer()]
    whole = [Contender(MLP, _own.whole_mlp, "mlp"), Contender("fused", _own.fused, "mlp")]
    return Found([auto, bare, *behind, *whole])


def behind_speed(row: CellRecord) -> float | None:
    """Compare with cuBLAS's product, both behind the writer, whose own time is subtracted."""
    names = _behind.name(AUTO), _behind.name(BARE), _behind.WRITER
    ours, theirs, writer = (row.us(name) for name in names)
    return (theirs - writer) / (ours - writer) if ours and theirs and writer else None


def behind_speeds(record: Record) -> list[figures.Ratio]:
    """Collect `behind_speed` of every cell that has one."""
    return figures.collected(record, behind_speed)


SUITE = Suite(
    name="lengths",
    about="M that no tile divides: gate and up, also behind a kernel that writes x; whole MLP",
    cells=tuple(cell(model, m) for model in MODELS for m in LENGTHS),
    contenders=(ours, _torch.mlp),
    columns=(
        *columns.CELL,
        columns.time(AUTO, "auto us", width=9),
        columns.kernel(AUTO),
        columns.speed("bare", BARE),
        columns.time(_behind.name(AUTO), "behind us"),
        columns.time(_behind.WRITER, "writer us"),
        columns.figure("behind", lambda record, row: behind_speed(row), "{:.3f}", width=7),
        columns.time(MLP, "mlp us", width=9),
        columns.speed("best other", *figures.UNFUSED_MLP, of=MLP),
    ),
    legend=(
        "auto's time, and its speed against cuBLAS's bare product, back to back; auto's time "
        "behind a kernel that writes x, that kernel's, and the speed behind it without its time; "
        f"whole MLP: its time, and speed against the best of {', '.join(figures.UNFUSED_MLP)}"
    ),
    tables={
        "gate and up": lambda record: summaries.ratios_table(
            AUTO,
            {
                "bare": figures.speed(record, AUTO, [BARE]),
                "bare, both behind a writer": behind_speeds(record),
            },
        ),
        "whole MLP": lambda record: summaries.speed_table(record, MLP, *figures.UNFUSED_MLP),
    },
    method=Method(measure=functools.partial(measure, whole_mlp=True)),
)
