"""What the parts of a stress run report: a line each, and the same as JSON."""

from __future__ import annotations

import json
import pathlib
from dataclasses import asdict, dataclass, field

SHOWN = 8  # things that were wrong, in a line


@dataclass(frozen=True)
class Outcome:
    """What a part did, so many of something, and what was wrong, in words; right if nothing was.

    `said` is what is worth knowing even so.
    """

    count: int
    unit: str
    wrong: tuple[str, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class Verdict:
    """An outcome, and how long it took."""

    part: str
    good: bool
    count: int
    unit: str
    seconds: float
    said: str

    def __str__(self) -> str:
        verdict = "ok" if self.good else "FAIL"
        said = f": {self.said}" if self.said else ""
        counted = f"{self.count} {self.unit}"
        return f"{self.part:<9} {counted:>20} {self.seconds:>7.1f} s  {verdict}{said}"


def judged(part: str, outcome: Outcome, seconds: float) -> Verdict:
    """A part that did nothing is not right either."""
    wrong = list(outcome.wrong)
    if not wrong and outcome.count == 0:
        wrong = ["nothing was done"]
    shown = wrong[:SHOWN]
    if len(wrong) > SHOWN:
        shown.append(f"and {len(wrong) - SHOWN} more")
    return Verdict(
        part=part,
        good=not wrong,
        count=outcome.count,
        unit=outcome.unit,
        seconds=round(seconds, 2),
        said="\n  ".join(shown) if wrong else outcome.said,
    )


@dataclass
class Report:
    """All verdicts, kept in a file as they come: what a run that hangs did not reach is missing."""

    parts: list[str]
    path: pathlib.Path | None = None
    about: dict[str, object] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every part ran, and nothing was wrong."""
        ran = [verdict.part for verdict in self.verdicts]
        return ran == self.parts and all(verdict.good for verdict in self.verdicts)

    def add(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.write()

    def write(self) -> None:
        if self.path is None:
            return
        verdicts = [asdict(verdict) for verdict in self.verdicts]
        content = {**self.about, "good": self.good, "asked": self.parts, "parts": verdicts}
        self.path.write_text(json.dumps(content, indent=1) + "\n")
