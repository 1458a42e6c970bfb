"""Targets, and how one is judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cuswiglu.bench.cells import Cell
from cuswiglu.bench.record import Record
from cuswiglu.bench.report.figures import Ratio, best, geomean, worst

Show = Callable[[float], str]


@dataclass(frozen=True)
class Target:
    """A target that the project set itself, and what was found.

    Attributes
    ----------
    name : str
    value : str
        What was found, in words.
    must, aim : str
        In words; aim is "-" where there is one target alone.
    met : str
        "aim", "must" or "missed".
    cells, of : int
        How many of the suite's cells it stands on.
    """

    name: str
    value: str
    must: str
    aim: str
    met: str
    cells: int
    of: int

    @property
    def partial(self) -> bool:
        """Whether cells are missing."""
        return self.cells < self.of


def ratio(value: float) -> str:
    """Show a ratio."""
    return f"{value:.3f}"


def hundredths(value: float) -> str:
    """Show a ratio, not too exactly."""
    return f"{value:.2f}"


def percent(value: float) -> str:
    """Show a share."""
    return f"{value:.1%}"


@dataclass(frozen=True)
class Limits:
    """Bounds of a value, that it must and that it shall reach: at least so much, or at most."""

    must: float
    aim: float | None = None
    show: Show = ratio
    at_most: bool = False

    def judge(self, name: str, value: float, text: str, cells: int, of: int) -> Target:
        """Judge a value that `text` tells."""
        met = "aim" if self._met(value, self.aim) else "must"
        met = met if self._met(value, self.must) else "missed"
        return Target(name, text, self._words(self.must), self._words(self.aim), met, cells, of)

    def _met(self, value: float, limit: float | None) -> bool:
        return limit is not None and (value <= limit if self.at_most else value >= limit)

    def _words(self, limit: float | None) -> str:
        if limit is None:
            return "-"
        return f"at most {self.show(limit)}" if self.at_most else self.show(limit)


def mean(name: str, found: Sequence[Ratio], limits: Limits, of: int) -> list[Target]:
    """Judge the geometric mean of some cells, if there are any."""
    if not found:
        return []
    value = geomean(one.value for one in found)
    name = f"{name}, geometric mean"
    return [limits.judge(name, value, limits.show(value), len(found), of)]


def lowest(name: str, found: Sequence[Ratio], limits: Limits, of: int) -> list[Target]:
    """Judge the lowest of some cells, if there are any."""
    return [_one(name, worst(found), len(found), limits, of)] if found else []


def highest(name: str, found: Sequence[Ratio], limits: Limits, of: int) -> list[Target]:
    """Judge the highest of some cells, if there are any."""
    return [_one(name, best(found), len(found), limits, of)] if found else []


def _one(name: str, one: Ratio, cells: int, limits: Limits, of: int) -> Target:
    return limits.judge(name, one.value, f"{limits.show(one.value)} ({one.cell})", cells, of)


def among(found: Sequence[Ratio], cells: Collection[Cell]) -> list[Ratio]:
    """Select those that are of these cells."""
    return [one for one in found if one.cell in cells]


def present(record: Record, names: Sequence[str]) -> str:
    """Name those of some contenders that were timed at all."""
    there = [name for name in names if any(row.us(name) for row in record.cells)]
    return there[0] if len(there) == 1 else f"the best of {', '.join(there)}"
