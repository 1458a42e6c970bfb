"""Figures: what a record's cells come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..cells import Cell
from ..record import CellRecord, Record

#: Dense BF16 without sparsity, in FLOP/s: NVIDIA H100 and H200 SXM datasheets.
PEAK_FLOPS = 989.5e12
BF16_BYTES = 2
QUACK = ("quack", "quack-default")
UNFUSED_MLP = ("torch-eager", "torch-compile", "fused")
#: Families of the two kernels of the paper that this library began from (arXiv 2607.02521).
PAPER_FAMILIES = {"sync": "Kernel-1", "interleave": "Kernel-2"}


def geomean(values: Iterable[float]) -> float:
    """Compute the geometric mean; NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as something a contender is, in one cell."""

    cell: Cell
    value: float


def collected(record: Record, value: Callable[[CellRecord], float | None]) -> list[Ratio]:
    """Collect a figure of every cell that has one."""
    found = ((row.cell, value(row)) for row in record.cells)
    return [Ratio(cell, one) for cell, one in found if one]


def speed(record: Record, name: str, against: Sequence[str]) -> list[Ratio]:
    """Compare a contender with the fastest of others, in every cell that has both."""

    def value(row: CellRecord) -> float | None:
        ours, theirs = row.us(name), row.us(*against)
        return theirs / ours if ours and theirs else None

    return collected(record, value)


def worst(ratios: Sequence[Ratio]) -> Ratio:
    """Find the lowest."""
    return min(ratios, key=lambda ratio: ratio.value)


def best(ratios: Sequence[Ratio]) -> Ratio:
    """Find the highest."""
    return max(ratios, key=lambda ratio: ratio.value)


def best_variant(row: CellRecord, family: str = "") -> tuple[str, float] | None:
    """Find our fastest variant in a cell, of one family or of all, and its microseconds."""
    times = {
        name: outcome.microseconds
        for name, outcome in row.variants().items()
        if outcome.microseconds and family in ("", outcome.family)
    }
    return min(times.items(), key=lambda item: item[1]) if times else None


def winning_family(row: CellRecord) -> str:
    """Find the family of our fastest variant; empty if there is none."""
    found = best_variant(row)
    return row.outcomes[found[0]].family if found else ""


def families(record: Record) -> list[str]:
    """List every family that was timed, the paper's first."""
    seen = {outcome.family for row in record.cells for outcome in row.variants().values()}
    return [*(f for f in PAPER_FAMILIES if f in seen), *sorted(seen - set(PAPER_FAMILIES))]


def of_best_variant(row: CellRecord) -> float | None:
    """Compute auto's speed over our fastest variant's: 1 if the choice was right."""
    found, ours = best_variant(row), row.us("auto")
    return found[1] / ours if found and ours else None


def against_best_variant(record: Record) -> list[Ratio]:
    """Collect `of_best_variant` of every cell that has one."""
    return collected(record, of_best_variant)


def peak_share(row: CellRecord, *names: str, whole_mlp: bool = False) -> float | None:
    """Compute the share of `PEAK_FLOPS` that the fastest of some contenders reaches."""
    time = row.us(*names)
    return row.cell.flops(whole_mlp=whole_mlp) / (time * 1e-6) / PEAK_FLOPS if time else None


def utilisation(record: Record, *names: str, whole_mlp: bool = False) -> list[Ratio]:
    """Collect `peak_share` of every cell that has one."""
    return collected(record, lambda row: peak_share(row, *names, whole_mlp=whole_mlp))


def intensity(cell: Cell, *, fused: bool) -> float:
    """Compute the arithmetic intensity of gate and up, FLOP per byte of memory traffic.

    FLOPs are 4 M N K. Fused, the bytes are those of x, both weights and the result, each moved
    once: 2 (M K + 2 K N + M N). Unfused, the gate and up products are written and read as well:
    8 M N bytes more. 0.5B at M = 4096 then gains 246.7%, which agrees with the paper's "+247%".
    """
    m, n, k = cell.m, cell.n, cell.k
    elements = m * k + 2 * k * n + m * n + (0 if fused else 4 * m * n)
    return cell.flops() / (BF16_BYTES * elements)
