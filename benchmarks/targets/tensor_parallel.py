"""Targets of the suite `tensor-parallel`: more GPUs than one."""

from __future__ import annotations

from cuswiglu.bench.contenders._jax_parallel import OURS
from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import Ratio
from cuswiglu.bench.suites import SUITES
from cuswiglu.bench.suites.tensor_parallel import scaling, speed

from .base import Limits, Target, lowest


def targets(record: Record) -> list[Target]:
    """Judge a record of stacks that are cut over GPUs."""
    found: list[Target] = []
    cells, of = [], len(SUITES["tensor-parallel"].cells)
    for row in record.cells:
        one = scaling(row, OURS)
        if one.gpus == 1:
            continue
        if one.speedup and one.gpus == 2 and (row.cell.model, row.cell.m) == ("72b", 4096):
            name = "72B at M = 4096 on two GPUs, against one"
            ratio = Ratio(row.cell, one.speedup)
            found += lowest(name, [ratio], Limits(1.7), 1)
        if value := speed(row, gpus=one.gpus):
            cells.append(Ratio(row.cell, value))
    name = "on all GPUs, against plain JAX there, worst cell"
    return found + lowest(name, cells, Limits(1.0), of)
