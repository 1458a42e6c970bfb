"""Suite `random`: how well selection does where nothing was measured, among our own kernels."""

from __future__ import annotations

import math
import random

from ..cells import Cell
from ..contenders import _own
from ..report import columns, summaries
from .base import Suite


def cells(count: int, seed: int) -> tuple[Cell, ...]:
    """Draw shapes that no tuned table has: log-uniform, K and N multiples of 64."""
    draw = random.Random(seed)

    def size(low: int, high: int, multiple: int) -> int:
        drawn = math.exp(draw.uniform(math.log(low), math.log(high)))
        return max(multiple, round(drawn / multiple) * multiple)

    return tuple(
        Cell(f"random{number}", size(512, 8192, 64), size(1024, 28672, 64), size(256, 8192, 1))
        for number in range(count)
    )


SUITE = Suite(
    name="random",
    about="40 shapes that no tuned table has, among our own kernels",
    cells=cells(40, seed=40),
    contenders=(_own.gate_up,),
    columns=(
        *columns.CELL,
        columns.time("auto", "auto us", width=9),
        columns.kernel("auto"),
        columns.of_best_variant(),
        columns.speed("bare", "bare"),
        columns.of_peak(),
    ),
    legend="auto's time, then its speed against each contender",
    tables={"our variants": summaries.variants_table, "speed": summaries.auto_table},
    takes_kernels=True,
)
