"""The report of a check: what its JSON holds, read and written; and the targets."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..bench.cells import Cell
from ..common import files
from ..testing.numerics import Accuracy, Worst
from .contenders import EAGER, UNFUSED
from .distributions import Case

FORMAT = 2
MAX_BYTES = 256 << 20
#: Targets of every kernel of ours in every case.
MOST_OFF = 0.0006
MOST_OFF_OF_EAGER = 0.1
LEAST_WITHIN_ULP = 0.999


@dataclass(frozen=True)
class Comparison:
    """Accuracy of one contender in one case, `measured`, or an `error`."""

    ours: bool
    measured: Accuracy | None = None
    error: str = ""


@dataclass(frozen=True)
class Element:
    """The inputs of one element, as little-endian BF16 in base64.

    `x` is its row, `gate` and `up` its columns; `contender` computed it worst of all of ours.
    """

    contender: str
    x: str
    gate: str
    up: str

    @classmethod
    def of(cls, contender: str, x: Any, gate: Any, up: Any) -> Element:
        """Keep BF16 vectors of NumPy."""
        texts = (base64.b64encode(part.tobytes()).decode() for part in (x, gate, up))
        return cls(contender, *texts)

    def vectors(self) -> list[np.ndarray[Any, Any]]:
        """Read x, gate and up."""
        texts = (self.x, self.gate, self.up)
        return [np.frombuffer(base64.b64decode(text), ml_dtypes.bfloat16) for text in texts]


@dataclass(frozen=True)
class CaseReport:
    """One case: outcomes of all contenders, and the inputs of our worst element."""

    case: Case
    outcomes: dict[str, Comparison]
    worst: Element | None = None

    @property
    def eager(self) -> str:
        """Name who stands for eager: torch, or the operations one by one where there is none."""
        found = self.outcomes.get(EAGER)
        return EAGER if found is not None and found.measured is not None else UNFUSED

    def missed(self) -> list[str]:
        """Tell the targets that are missed."""
        eager = self.outcomes.get(self.eager)
        most = MOST_OFF
        if eager is not None and eager.measured is not None:
            most = min(most, MOST_OFF_OF_EAGER * eager.measured.off)
        return [
            f"{self.case}: {name}: {what}"
            for name, outcome in self.outcomes.items()
            if outcome.ours
            for what in _missed(outcome, most)
        ]


def _missed(outcome: Comparison, most: float) -> list[str]:
    found = outcome.measured
    if found is None:
        return [outcome.error]
    missed = []
    if not found.off <= most:
        missed.append(f"{found.off:.4%} off by more than 1%, at most {most:.4%}")
    if found.off_floored:
        missed.append(f"{found.off_floored:.2g} off by more than 1% away from zero, none may be")
    if not found.within_ulp >= LEAST_WITHIN_ULP:
        missed.append(f"{found.within_ulp:.4%} within one ulp, at least {LEAST_WITHIN_ULP:.1%}")
    return missed


@dataclass(frozen=True)
class Report:
    """A check, as far as it has come; `missing` says why a contender or weights were not there."""

    seed: int
    started: str
    environment: dict[str, Any]
    missing: dict[str, str] = field(default_factory=dict)
    cases: tuple[CaseReport, ...] = ()

    def missed(self) -> list[str]:
        """Tell the targets that are missed."""
        return [text for case in self.cases for text in case.missed()]


def save(report: Report, path: Path) -> None:
    """Write whole or not at all, for its owner alone; most kernels have an outcome in common."""
    content = {"format": FORMAT, **asdict(report)}
    for row, case in zip(content["cases"], report.cases, strict=True):
        who: dict[Comparison, list[str]] = {}
        for name, outcome in case.outcomes.items():
            who.setdefault(outcome, []).append(name)
        row["outcomes"] = [{"who": names, **asdict(one)} for one, names in who.items()]
    files.write_json(path, content)


def load(path: Path) -> Report:
    """Read what `save` wrote.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is no report of this format, or larger than `MAX_BYTES`.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is no accuracy report: it is larger than {MAX_BYTES} bytes")
    try:
        content = json.loads(path.read_bytes())
        if content.pop("format") != FORMAT:
            raise ValueError(
                f"this version reads format {FORMAT}; to make it anew: cuswiglu check --json NEW"
            )
        cases = tuple(_case(row) for row in content.pop("cases"))
        return Report(**content, cases=cases)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no accuracy report: {error!r}") from error


def _case(row: dict[str, Any]) -> CaseReport:
    case = Case(**row["case"] | {"cell": Cell(**row["case"]["cell"])})
    outcomes = {name: _outcome(value) for value in row["outcomes"] for name in value["who"]}
    return CaseReport(case, outcomes, None if row["worst"] is None else Element(**row["worst"]))


def _outcome(row: dict[str, Any]) -> Comparison:
    found = row["measured"]
    if found is not None:
        parts = {"ulps": tuple(found["ulps"]), "worst": Worst(**found["worst"])}
        found = Accuracy(**found | parts)
    return Comparison(row["ours"], found, row["error"])
