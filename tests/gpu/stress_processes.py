"""Processes of their own: a forked child, the interpreter's end with work in flight, contexts."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.gpu.verdicts import Outcome

STRESSED = pathlib.Path(__file__).parent / "stressed.py"
#: Part -> what stressed.py runs for it, all at once.
SCRIPTS = {
    "fork": ("fork",),
    "exit": ("exit-calls", "exit-graph", "exit-threads", "exit-loans"),
    "contexts": ("context-after", "context-first", "context-beside"),
}
LIMIT_S = 60.0


@dataclass(frozen=True)
class Ran:
    """How a script ended, and what it said; `status` is None if it did not end."""

    name: str
    status: int | None
    out: str
    err: str


def run(name: str) -> Ran:
    """A script of stressed.py."""
    return run_command(name, [sys.executable, str(STRESSED), name], LIMIT_S)


def run_command(name: str, command: list[str], limit_s: float) -> Ran:
    """A process, which is killed where it does not end."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        out, err = (_text(piece) for piece in (error.stdout, error.stderr))
        return Ran(name, None, out, err)
    return Ran(name, ended.returncode, ended.stdout, ended.stderr)


def _text(piece: bytes | str | None) -> str:
    return piece.decode() if isinstance(piece, bytes) else piece or ""


def outcome(every: list[Ran]) -> Outcome:
    """Right are those that end with 0, say nothing on stderr, and nothing of being wrong."""
    lines = {ran.name: ran.out.splitlines() for ran in every}
    count = sum(not line.startswith(("WRONG", "NOTE")) for one in lines.values() for line in one)
    wrong, notes = [], []
    for ran in every:
        wrong += [f"{ran.name}: {line[6:]}" for line in lines[ran.name] if line[:5] == "WRONG"]
        notes += [f"{ran.name}: {line[5:]}" for line in lines[ran.name] if line[:4] == "NOTE"]
        if ran.status is None:
            wrong.append(f"{ran.name}: did not end: {ran.err[-2000:]}")
        elif ran.status != 0:
            wrong.append(f"{ran.name}: ended with {ran.status}: {ran.err[-2000:]}")
        elif ran.err.strip():
            wrong.append(f"{ran.name}: said on stderr: {ran.err[-2000:]}")
        elif not lines[ran.name]:
            wrong.append(f"{ran.name}: did nothing")
    return Outcome(count, "steps", tuple(wrong), "\n  ".join(notes))


def run_all(part: str, _seconds: float = 0.0) -> Outcome:
    """All scripts of a part at once."""
    names = SCRIPTS[part]
    with ThreadPoolExecutor(len(names)) as pool:
        return outcome(list(pool.map(run, names)))
