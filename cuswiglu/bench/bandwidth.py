"""What the suite `decode` comes to: how fast gate and up are read, beside a copy."""

from __future__ import annotations

from collections.abc import Sequence

from .record import CellRecord, Record, Session

OURS, BARE = "gate-up", "bare"
MLP, MLP_BATCH = "mlp", "mlp-batch"


def tbs(row: CellRecord) -> float | None:
    """TB/s at which `gate-up` reads the weights of gate and up: X and the result do not count."""
    time = row.us(OURS)
    return row.cell.gate_up_bytes / time / 1e6 if time else None


def share(row: CellRecord, sessions: Sequence[Session]) -> float | None:
    """Of the copy's TB/s, read plus written, in the session that the cell was measured in."""
    rate = tbs(row)
    copy = sessions[row.session].copy_tbs if row.session < len(sessions) else None
    return rate / copy if rate and copy else None


def shares(record: Record) -> list[tuple[CellRecord, float]]:
    """`share` in every cell that has one."""
    found = ((row, share(row, record.sessions)) for row in record.cells)
    return [(row, value) for row, value in found if value]
