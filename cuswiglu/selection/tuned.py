"""Tuned tables: which variant was fastest where it was measured.

One table comes with the package, for the H200; `cuswiglu tune` writes another in the user's cache.
Both are JSON, and hold names and numbers only.
"""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ..common import files
from ..kernels.estimate import Rates
from ..kernels.split import Split
from ..problem import Layout, Problem

FORMAT = 2
OLD_FORMAT = 1  # all of it measured in BF16; rows had "major" for "layout", and no "elements"
PACKAGED = Path(__file__).parent / "tuned_h200.json"
MAX_BYTES = 4 << 20
MAX_RASTER_ROWS = 2**31 - 1  # a 32-bit kernel argument
M_STEP = 8  # tokens that share a choice: of a WGMMA's N
FEW_TOKENS = (8, 16, 32, 64)  # and below them, what a decode kernel multiplies at once
#: Element types that `cuswiglu tune` measures with.
MEASURED = ("bfloat16", "bfloat16", "bfloat16")


@dataclass(frozen=True)
class Shape:
    """A problem to tune: sizes, weight layout, and whether it has gate and up."""

    m: int
    n: int
    k: int
    layout: str = Layout.K
    gated: bool = True
    elements: ClassVar[tuple[str, ...]] = MEASURED


@dataclass(frozen=True)
class Key:
    """Problem that a choice was measured for; M rounded up to 8, 16, 32, 64, then by 8."""

    gated: bool
    m: int
    n: int
    k: int
    layout: str
    elements: tuple[str, ...] = MEASURED  # of x, the weights and the result

    @classmethod
    def of(cls, asked: Problem | Shape) -> Key:
        """Find the key that a problem, or a shape to tune, falls under."""
        whole = -(-asked.m // M_STEP) * M_STEP
        m = next((few for few in FEW_TOKENS if asked.m <= few), whole)
        return cls(asked.gated, m, asked.n, asked.k, str(asked.layout), asked.elements)


@dataclass(frozen=True)
class Entry:
    """The fastest variant (or "cublas"), its raster or its split, and its microseconds."""

    variant: str
    raster_rows: int
    us: float
    split: Split | None = None


@dataclass(frozen=True)
class Table:
    """Choices and measured rates, tied to a GPU model, and to the kernels and the driver."""

    gpu: str
    measured_with: str
    choices: dict[Key, Entry]
    rates: dict[str, Rates]

    def find(self, asked: Problem) -> Entry | None:
        """Find a problem's entry; for FP16, which has BF16's bytes and rates, BF16's serves too."""
        key = Key.of(asked)
        alike = tuple("bfloat16" if name == "float16" else name for name in key.elements)
        return self.choices.get(key) or self.choices.get(replace(key, elements=alike))


EMPTY = Table("", "", {}, {})


def cache_path() -> Path:
    """Path of the user's table: in XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "cuswiglu" / "tuned.json"


def parse(text: str) -> Table:
    """Read a table.

    Raises
    ------
    ValueError
        If it is damaged, or of another format.
    """
    try:
        content = json.loads(text)
        if content["format"] not in (OLD_FORMAT, FORMAT):
            raise ValueError(f"format {content['format']}, this version reads {FORMAT}")
        old = content["format"] == OLD_FORMAT
        choices = {_key(row, old): _entry(row) for row in content["choices"]}
        rates = {
            str(name): Rates(float(step), float(tile))
            for name, (step, tile) in content["rates"].items()
        }
        if not all(1 <= entry.raster_rows <= MAX_RASTER_ROWS for entry in choices.values()):
            raise ValueError(f"raster_rows must be from 1 to {MAX_RASTER_ROWS}")
        return Table(str(content["gpu"]), str(content["measured_with"]), choices, rates)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"it is damaged ({error!r})") from error


def _key(row: dict[str, Any], old: bool) -> Key:
    layout, elements = (row["major"], MEASURED) if old else (row["layout"], row["elements"])
    sizes = bool(row["gated"]), int(row["m"]), int(row["n"]), int(row["k"])
    return Key(*sizes, str(layout), tuple(map(str, elements)))


def _entry(row: dict[str, Any]) -> Entry:
    split = None
    if "split" in row:
        rows, ranks, ctas = (int(number) for number in row["split"])
        split = Split(rows, ranks, ctas)
    return Entry(str(row["variant"]), int(row["raster_rows"]), float(row["us"]), split)


def _written(entry: Entry) -> dict[str, Any]:
    row = {"variant": entry.variant, "raster_rows": entry.raster_rows, "us": entry.us}
    return row if entry.split is None else row | {"split": list(astuple(entry.split))}


def _order(key: Key) -> tuple[Any, ...]:
    return key.gated, key.n, key.k, key.m, key.layout, key.elements


def serialise(table: Table) -> str:
    """Write a table as JSON, a line for each choice."""
    rows = [
        json.dumps({**vars(key), **_written(entry)})
        for key, entry in sorted(table.choices.items(), key=lambda item: _order(item[0]))
    ]
    rates = {name: [rate.step_us, rate.tile_us] for name, rate in sorted(table.rates.items())}
    head = {
        "format": FORMAT,
        "gpu": table.gpu,
        "measured_with": table.measured_with,
        "rates": rates,
    }
    body = json.dumps(head, indent=1)[:-2]
    return body + ',\n "choices": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"


def read(path: Path) -> Table:
    """Read a table from a file; one that cannot be used is ignored, with a warning."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        return parse(path.read_text())
    except FileNotFoundError:
        return EMPTY
    except (OSError, ValueError) as error:
        warnings.warn(
            f"cuswiglu ignores the tuned table {path}: {error}; write it anew with `cuswiglu tune`",
            stacklevel=2,
        )
        return EMPTY


@functools.cache
def tables() -> tuple[Table, Table]:
    """Read the user's table and the packaged one, once."""
    return read(cache_path()), read(PACKAGED)


def lookup(problem: Problem, gpu: str, measured_with: str) -> Entry | None:
    """Look up the measured choice for a problem on a GPU model, in the user's table first.

    The user's counts only with the very kernels and driver it was measured with.
    """
    user, packaged = tables()
    if user is not EMPTY and (user.gpu, user.measured_with) == (gpu, measured_with):
        found = user.find(problem)
        if found is not None:
            return found
    elif user is not EMPTY and user.gpu == gpu:
        _warn_old(cache_path())
    if packaged.gpu == gpu:
        return packaged.find(problem)
    return None


@functools.cache
def _warn_old(path: Path) -> None:
    warnings.warn(
        f"cuswiglu ignores the tuned table {path}: it was measured with other kernels or "
        "another driver; write it anew with `cuswiglu tune`",
        stacklevel=2,
    )


def write(table: Table, path: Path) -> None:
    """Write a table whole or not at all, readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.atomic_write(path, serialise(table).encode())


def merge(old: Table, choices: Iterable[tuple[Key, Entry]], gpu: str, measured_with: str) -> Table:
    """Add choices to a table; old ones stay if they are of the same GPU, kernels and driver."""
    same = (old.gpu, old.measured_with) == (gpu, measured_with)
    kept: dict[Key, Entry] = dict(old.choices) if same else {}
    return Table(gpu, measured_with, kept | dict(choices), dict(old.rates) if same else {})
