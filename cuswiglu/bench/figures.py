"""Figures: what a record's cells come to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import fp64
from .cells import Cell, flops
from .record import CellRecord, Record

#: Dense BF16 without sparsity, in FLOP/s: NVIDIA H100 and H200 SXM datasheets.
PEAK_FLOPS = 989.5e12
QUACK = ("quack", "quack-default")
UNFUSED_MLP = ("torch-eager", "torch-compile", "fused")
#: Who is timed in the suite `host`.
HOST = (
    "planned",
    "captured",
    "unplanned",
    "unplanned-swiglu",
    "bare-launches",
    "torch-eager",
    "cupy-matmul",
)
#: Of the suite `activations`, whose time over `silu`'s is marked; `float16`'s is shown alone, as
#: other bits take other power.
COSTS = (*fp64.ACTIVATIONS, "biased")
#: The paper's two kernels.
PAPER_FAMILIES = {"sync": "Kernel-1", "interleave": "Kernel-2"}


def geomean(values: Iterable[float]) -> float:
    """Geometric mean; NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as something a contender is, in one cell."""

    cell: Cell
    value: float


def speed(record: Record, name: str, against: Sequence[str]) -> list[Ratio]:
    """Speed of a contender against the fastest of others, in every cell that has both."""
    ratios = []
    for row in record.cells:
        ours, theirs = row.us(name), row.us(*against)
        if ours and theirs:
            ratios.append(Ratio(row.cell, theirs / ours))
    return ratios


def worst(ratios: Sequence[Ratio]) -> Ratio:
    return min(ratios, key=lambda ratio: ratio.value)


def best(ratios: Sequence[Ratio]) -> Ratio:
    return max(ratios, key=lambda ratio: ratio.value)


def best_instance(row: CellRecord, family: str = "") -> tuple[str, float] | None:
    """Our fastest instance in a cell, of one family or of all, and its microseconds."""
    times = {
        name: outcome.microseconds
        for name, outcome in row.instances().items()
        if outcome.microseconds and family in ("", outcome.family)
    }
    return min(times.items(), key=lambda item: item[1]) if times else None


def winning_family(row: CellRecord) -> str:
    """The family of our fastest instance, or an empty string."""
    found = best_instance(row)
    return row.outcomes[found[0]].family if found else ""


def families(record: Record) -> list[str]:
    """Every family that was timed, the paper's first."""
    seen = {outcome.family for row in record.cells for outcome in row.instances().values()}
    return [*(f for f in PAPER_FAMILIES if f in seen), *sorted(seen - set(PAPER_FAMILIES))]


def against_best_instance(record: Record) -> list[Ratio]:
    """Speed of auto against our fastest instance of each cell: 1 if the choice was right."""
    ratios = []
    for row in record.cells:
        found, ours = best_instance(row), row.us("auto")
        if found and ours:
            ratios.append(Ratio(row.cell, found[1] / ours))
    return ratios


def utilisation(record: Record, *names: str) -> list[Ratio]:
    """Share of `PEAK_FLOPS` that the fastest of some contenders reaches in each cell."""
    ratios = []
    for row in record.cells:
        time = row.us(*names)
        if time:
            rate = flops(record.suite, row.cell) / (time * 1e-6)
            ratios.append(Ratio(row.cell, rate / PEAK_FLOPS))
    return ratios
