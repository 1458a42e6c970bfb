"""A run: cell after cell, each kept as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from . import copy_rate, machine, smi
from .cells import Cell, layers, whole_mlp
from .contenders import Contender, Found, find
from .measure import Measured, measure
from .record import CellRecord, Record, Session, load, save


class Watch(Protocol):
    """What is asked of a monitor of the GPU."""

    trouble: str

    def __enter__(self) -> Watch: ...

    def __exit__(self, *exception: object) -> None: ...

    def take(self) -> dict[str, Any]: ...


Measure = Callable[..., Measured]


@dataclass(frozen=True)
class Bench:
    """What a run is made of; tests put something else than a GPU there."""

    gpu: Callable[[], str] = machine.bus_id
    session: Callable[[str], Session] = machine.session
    copy: Callable[[], float] = copy_rate.measured
    find: Callable[[str], Found] = find
    measure: Measure = measure
    watch: Callable[[str], Watch] = smi.Monitor
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Listener:
    """Who is told of a run's progress: of the start, of each cell, of what is being done."""

    started: Callable[[Record], None] = lambda record: None
    finished: Callable[[Record, CellRecord], None] = lambda record, cell: None
    doing: Callable[[str], None] = lambda what: None


def begin(suite: str, seed: int, rounds: int, path: Path | None, *, resume: bool) -> Record:
    """An empty record, or the kept one that is to be gone on with.

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
    path: Path | None = None,
    *,
    limit_s: float | None = None,
    bench: Bench | None = None,
    listener: Listener | None = None,
) -> Record:
    """Measure the cells that a record lacks.

    Parameters
    ----------
    record : Record
        From `begin`.
    cells : sequence of Cell
    path : Path, optional
        Where the record is written after each cell.
    limit_s : float, optional
        After this many seconds no cell is started.

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
    bench, listener = bench or Bench(), listener or Listener()
    start = bench.clock()
    gpu = bench.gpu()
    session = bench.session(gpu)
    _check_same(record, session)
    if record.suite == "decode":
        session = replace(session, copy_tbs=bench.copy())
    found = bench.find(record.suite)
    session = replace(session, missing=found.missing)
    record = replace(record, sessions=(*record.sessions, session))
    _keep(record, path)
    listener.started(record)
    with bench.watch(gpu) as watch:
        for cell in record.missing_cells(cells):
            if limit_s is not None and bench.clock() - start >= limit_s:
                break
            row = _measure(record, cell, found.contenders, bench, watch, listener)
            record = _with(record, row, watch.trouble)
            _keep(record, path)
            listener.finished(record, row)
    return record


def _measure(
    record: Record,
    cell: Cell,
    contenders: Sequence[Contender],
    bench: Bench,
    watch: Watch,
    listener: Listener,
) -> CellRecord:
    watch.take()
    begun = bench.clock()
    measured = bench.measure(
        cell,
        contenders,
        seed=record.seed,
        rounds=record.rounds,
        whole_mlp=whole_mlp(record.suite),
        layers=layers(record.suite),
        doing=lambda what: listener.doing(f"{cell}: {what}"),
    )
    seconds = round(bench.clock() - begun, 1)
    session = len(record.sessions) - 1
    return CellRecord(cell, session, measured.sets, seconds, watch.take(), measured.outcomes)


def _with(record: Record, row: CellRecord, trouble: str) -> Record:
    """The record with one more cell, and what is wrong with it noted in the session."""
    *before, session = record.sessions
    found = [
        f"{row.cell}: clocks were held down, {reason}"
        for reason in row.gpu.get("reasons", ())
        if reason in smi.SLOWDOWNS
    ]
    if trouble:
        found.append(f"clocks and power were not recorded to the end: {trouble}")
    new = [warning for warning in found if warning not in session.warnings]
    session = replace(session, warnings=[*session.warnings, *new])
    return replace(record, sessions=(*before, session), cells=(*record.cells, row))


def _check_same(record: Record, session: Session) -> None:
    """Cells of one record come from the same kernels on the same kind of GPU."""
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
