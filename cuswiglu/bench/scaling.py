"""What the suite `tensor-parallel` comes to: speed-up by more GPUs, and what the sum costs."""

from __future__ import annotations

from dataclasses import dataclass

from .cells import Cell
from .record import CellRecord, Record

OURS, PLAIN = "cuswiglu-jax", "jax"
#: Ends the name of a contender that leaves the sum over the GPUs out.
UNSUMMED = "-unsummed"


def name(who: str, gpus: int, *, summed: bool = True) -> str:
    """Of a contender: "jax@2", "cuswiglu-jax@8-unsummed"."""
    return f"{who}@{gpus}{'' if summed else UNSUMMED}"


@dataclass(frozen=True)
class Scaling:
    """One contender in one cell: microseconds of a layer, None where there is no time.

    Attributes
    ----------
    gpus : int
        All that took part.
    one, every : float or None
        On one GPU, and on all.
    unsummed : float or None
        On all, without the sum.
    """

    cell: Cell
    gpus: int
    one: float | None
    every: float | None
    unsummed: float | None

    @property
    def speedup(self) -> float | None:
        """Of all GPUs over one."""
        return self.one / self.every if self.one and self.every else None

    @property
    def share(self) -> float | None:
        """Of the time on all GPUs, what the sum takes."""
        return 1 - self.unsummed / self.every if self.unsummed and self.every else None


def scaling(row: CellRecord, who: str) -> Scaling:
    """A contender's times in a cell; on a single GPU, `every` is `one`."""
    gpus = max([1, *(int(key.split("@")[1].split("-")[0]) for key in row.outcomes if "@" in key)])
    names = name(who, 1), name(who, gpus), name(who, gpus, summed=False)
    return Scaling(row.cell, gpus, *map(row.us, names))


def speed(row: CellRecord, *, gpus: int) -> float | None:
    """How many times as fast as plain JAX ours is, on so many GPUs."""
    ours, plain = (row.us(name(who, gpus)) for who in (OURS, PLAIN))
    return plain / ours if ours and plain else None


def speedups(record: Record, who: str) -> dict[Cell, float]:
    """Speed-up of a contender in each cell that has one, on more GPUs than one."""
    found = {row.cell: scaling(row, who) for row in record.cells}
    return {cell: one.speedup for cell, one in found.items() if one.gpus > 1 and one.speedup}
