"""The record of a benchmark: what its JSON holds, read and written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..common import files
from .cells import Cell

FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """Time and accuracy of one contender in one cell.

    Attributes
    ----------
    microseconds : float or None
        Median time of a call; None if `error` says why there is none.
    relative_error : float or None
        ||found - FP64|| / ||FP64|| over the sampled rows.
    off : float or None
        Share of their elements that differ from FP64 by more than 1%.
    family : str
        Family of a variant of ours, empty for all others.
    choice : str
        Kernel that `auto` ran.
    captured : bool
        Whether it was replayed from a CUDA graph.
    error : str
        Why there is no time.
    """

    microseconds: float | None = None
    relative_error: float | None = None
    off: float | None = None
    family: str = ""
    choice: str = ""
    captured: bool = True
    error: str = ""


@dataclass(frozen=True)
class CellRecord:
    """One cell: how long it took to measure (s), the GPU's state meanwhile, all outcomes.

    `session` is a number in `Record.sessions`, `sets` how many sets of weights calls rotated over.
    """

    cell: Cell
    session: int
    sets: int
    seconds: float
    gpu: dict[str, Any]
    outcomes: dict[str, Outcome]

    def us(self, *names: str) -> float | None:
        """Take the shortest time of these contenders, in microseconds; None if none has one."""
        found = (self.outcomes[name].microseconds for name in names if name in self.outcomes)
        return min((time for time in found if time is not None), default=None)

    def variants(self) -> dict[str, Outcome]:
        """Select our variants that were timed."""
        return {
            name: outcome
            for name, outcome in self.outcomes.items()
            if outcome.family and outcome.microseconds is not None
        }


@dataclass(frozen=True)
class Session:
    """One run of the command on one machine.

    `kernels` is a hash of all cubins; `missing` says why a contender was not there; `warnings` is
    what makes the numbers less than they should be; `copy_tbs` is the rate of `run.copy_rate`,
    where the suite compares with it.
    """

    started: str
    gpu: dict[str, Any]
    environment: dict[str, Any]
    kernels: str
    missing: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    copy_tbs: float | None = None


@dataclass(frozen=True)
class Record:
    """A suite, as far as it has been measured."""

    suite: str
    seed: int
    rounds: int
    sessions: tuple[Session, ...] = ()
    cells: tuple[CellRecord, ...] = ()

    def missing_cells(self, wanted: Iterable[Cell]) -> list[Cell]:
        """List the wanted cells that are not measured yet."""
        done = {record.cell for record in self.cells}
        return [cell for cell in wanted if cell not in done]


def save(record: Record, path: Path) -> None:
    """Write whole or not at all, so that a stopped run leaves the last complete cell."""
    content = {"format": FORMAT, **asdict(record)}
    for cell in content["cells"]:
        cell["outcomes"] = {
            name: {key: value for key, value in outcome.items() if value not in (None, "")}
            for name, outcome in cell["outcomes"].items()
        }
    files.write_json(path, content)


def load(path: Path) -> Record:
    """Read what `save` wrote.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is no benchmark record of this format.
    """
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(
                f"format {content['format']}, this version reads {FORMAT}; to make it anew: "
                f"cuswiglu bench --suite {content.get('suite', 'SUITE')} --json NEW"
            )
        return Record(
            suite=content["suite"],
            seed=content["seed"],
            rounds=content["rounds"],
            sessions=tuple(_make(Session, row) for row in content["sessions"]),
            cells=tuple(_cell(row) for row in content["cells"]),
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no benchmark record: {error!r}") from error


def _cell(row: dict[str, Any]) -> CellRecord:
    outcomes = {name: _make(Outcome, value) for name, value in row["outcomes"].items()}
    parts = row | {"cell": _make(Cell, row["cell"]), "outcomes": outcomes}
    record: CellRecord = _make(CellRecord, parts)
    return record


def _make(kind: Any, row: dict[str, Any]) -> Any:
    """Make a dataclass of a JSON object; fields that a newer version added are ignored."""
    known = {one.name for one in fields(kind)}
    return kind(**{key: value for key, value in row.items() if key in known})
