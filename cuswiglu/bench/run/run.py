"""A run: cell after cell, each kept as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..cells import Cell
from ..contenders import Contender, Found
from ..record import CellRecord, Record, Session, load, save
from . import machine, nvidia_smi
from .measure import Measured, measure


class Watch(Protocol):
    """Monitor of the GPU, as a run uses it."""

    trouble: str

    def __enter__(self) -> Watch:
        """Start to watch."""
        ...

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        ...

    def take(self) -> dict[str, Any]:
        """Sum up what was seen since the last call."""
        ...


@dataclass(frozen=True)
class Method:
    """How the cells of a suite are measured; tests put something else than a GPU there.

    Attributes
    ----------
    measure : function
        Measures a cell, as `measure.measure` does.
    session : function
        Looks at the machine, given the GPU's bus id.
    gpu : function
        Gives the bus id of the GPU, empty where a suite can do without one.
    watch : function
        Makes a monitor of the GPU.
    clock : function
        Seconds.
    """

    measure: Callable[..., Measured] = measure
    session: Callable[[str], Session] = machine.session
    gpu: Callable[[], str] = machine.bus_id
    watch: Callable[[str], Watch] = nvidia_smi.Monitor
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Listener:
    """Functions told of a run's progress: of the start, of each cell, of what is being done."""

    started: Callable[[Record], None] = lambda record: None
    finished: Callable[[Record, CellRecord], None] = lambda record, cell: None
    doing: Callable[[str], None] = lambda what: None


def begin(suite: str, seed: int, rounds: int, path: Path | None, *, resume: bool) -> Record:
    """Make an empty record, or load the one to resume.

    Raises
    ------
    FileExistsError
        If there is a kept one and `resume` was not asked for.
    ValueError
        If it is of another suite, seed or number of rounds, or no record at all.
    """
    wanted = Record(suite, seed, rounds)
    if path is None or not path.exists():
        return wanted
    if not resume:
        raise FileExistsError(f"{path} exists: pass --resume to go on with it, or another name")
    kept = load(path)
    for name in ("suite", "seed", "rounds"):
        old, new = getattr(kept, name), getattr(wanted, name)
        if old != new:
            raise ValueError(f"{path} has {name} {old}, this run {new}: it cannot be resumed")
    return kept


def run(
    record: Record,
    cells: Sequence[Cell],
    find: Callable[[], Found],
    path: Path | None = None,
    *,
    limit_s: float | None = None,
    method: Method | None = None,
    listener: Listener | None = None,
) -> Record:
    """Measure the cells that a record lacks.

    Parameters
    ----------
    record : Record
        From `begin`.
    cells : sequence of Cell
    find : function
        Finds the contenders.
    path : Path, optional
        Where the record is written after each cell.
    limit_s : float, optional
        After this many seconds no cell is started.
    method : Method, optional
        The suite's.
    listener : Listener, optional

    Returns
    -------
    Record
        Everything measured; `missing_cells` tells what is not.

    Raises
    ------
    RuntimeError
        If there is no GPU, or a contender crashed it.
    ValueError
        If the record's cells were measured with other kernels or on another kind of GPU.
    """
    if not record.missing_cells(cells):
        return record
    method, listener = method or Method(), listener or Listener()
    start = method.clock()
    gpu = method.gpu()
    session = method.session(gpu)
    _check_same(record, session)
    found = find()
    session = replace(session, missing=found.missing)
    record = replace(record, sessions=(*record.sessions, session))
    _keep(record, path)
    listener.started(record)
    with method.watch(gpu) as watch:
        for cell in record.missing_cells(cells):
            if limit_s is not None and method.clock() - start >= limit_s:
                break
            row = _measure(record, cell, found.contenders, method, watch, listener)
            record = _with(record, row, watch.trouble)
            _keep(record, path)
            listener.finished(record, row)
    return record


def _measure(
    record: Record,
    cell: Cell,
    contenders: Sequence[Contender],
    method: Method,
    watch: Watch,
    listener: Listener,
) -> CellRecord:
    watch.take()
    begun = method.clock()
    measured = method.measure(
        cell,
        contenders,
        seed=record.seed,
        rounds=record.rounds,
        doing=lambda what: listener.doing(f"{cell}: {what}"),
    )
    seconds = round(method.clock() - begun, 1)
    session = len(record.sessions) - 1
    return CellRecord(cell, session, measured.sets, seconds, watch.take(), measured.outcomes)


def _with(record: Record, row: CellRecord, trouble: str) -> Record:
    """Add one more cell to the record, and note in the session what is wrong with it."""
    *before, session = record.sessions
    found = [
        f"{row.cell}: clocks were held down, {reason}"
        for reason in row.gpu.get("reasons", ())
        if reason in nvidia_smi.SLOWDOWNS
    ]
    if trouble:
        found.append(f"clocks and power were not recorded to the end: {trouble}")
    new = [warning for warning in found if warning not in session.warnings]
    session = replace(session, warnings=[*session.warnings, *new])
    return replace(record, sessions=(*before, session), cells=(*record.cells, row))


def _check_same(record: Record, session: Session) -> None:
    """Refuse to mix cells of other kernels or of another kind of GPU into one record."""
    for old in record.sessions:
        for what, kept, here in (
            ("kernels", old.kernels, session.kernels),
            ("GPU", old.gpu.get("name"), session.gpu.get("name")),
        ):
            if kept != here:
                raise ValueError(
                    f"the kept cells were measured with {what} {kept}, this run has {here}: "
                    "start anew under another name"
                )


def _keep(record: Record, path: Path | None) -> None:
    if path is not None:
        save(record, path)
