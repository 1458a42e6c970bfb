"""The table of cells, a line as each is finished, and what is to be known about the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..cells import Cell
from ..record import CellRecord, Record, Session
from .columns import Column


def heading(columns: Sequence[Column]) -> str:
    """Write the columns' headings."""
    return _line((column.heading, column.width) for column in columns)


def line(columns: Sequence[Column], record: Record, row: CellRecord) -> str:
    """Write one cell of a record."""
    return _line((column.text(record, row), column.width) for column in columns)


def _line(parts: Iterable[tuple[str, int]]) -> str:
    return " ".join(text.rjust(width) for text, width in parts)


def session_text(session: Session) -> str:
    """Tell what a session ran on."""
    gpu, packages = session.gpu, session.environment.get("packages", {})
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    parts = [f"{session.started}: {gpu.get('name', 'unknown GPU')}"]
    if gpu.get("driver"):
        parts.append(f"driver {gpu['driver']}, {gpu.get('power_limit_w')} W")
    if session.copy_tbs:
        parts.append(f"copies {session.copy_tbs:.2f} TB/s, read plus written")
    return f"{', '.join(parts)}; cuswiglu {session.environment.get('cuswiglu')}, {versions}"


def _gpu_line(record: Record) -> str:
    """Tell clocks and power over all cells."""
    seen = [row.gpu for row in record.cells if row.gpu.get("sm_mhz") and row.gpu.get("watts")]
    if not seen:
        return "clocks and power: not recorded"
    clocks = [gpu["sm_mhz"] for gpu in seen]
    watts, heat = [gpu["watts"] for gpu in seen], [gpu.get("celsius") or 0 for gpu in seen]
    reasons = sorted({reason for gpu in seen for reason in gpu.get("reasons", ())})
    return (
        f"SM clock {min(c[0] for c in clocks):.0f} to {max(c[2] for c in clocks):.0f} MHz, "
        f"power up to {max(w[1] for w in watts):.0f} W, up to {max(heat):.0f} C, "
        f"clocks held by: {', '.join(reasons) or 'nothing'}"
    )


def notes(record: Record, wanted: Sequence[Cell], remarks: Mapping[str, str]) -> list[str]:
    """Tell sessions, clocks, warnings, who was missing, what failed, and what is not measured.

    Parameters
    ----------
    record : Record
    wanted : sequence of Cell
        Cells that the record shall have.
    remarks : mapping of str to str
        What is to be known of a contender that was timed.
    """
    lines = [session_text(session) for session in record.sessions]
    lines.append(_gpu_line(record))
    if len(record.sessions) > 1:
        lines.append(f"measured in {len(record.sessions)} sessions: compare within cells only")
    timed = {name for row in record.cells for name in row.outcomes if row.us(name)}
    lines += [remark for name, remark in remarks.items() if name in timed]
    for number, session in enumerate(record.sessions, 1):
        lines += [f"warning, session {number}: {warning}" for warning in session.warnings]
        lines += [f"missing: {name}: {reason}" for name, reason in session.missing.items()]
    lines += [
        f"failed: {row.cell}, {name}: {outcome.error}"
        for row in record.cells
        for name, outcome in row.outcomes.items()
        if outcome.error
    ]
    rest = record.missing_cells(wanted)
    if rest:
        lines.append(f"not measured: {len(rest)} cells: {', '.join(map(str, rest))}")
    return list(dict.fromkeys(lines))
