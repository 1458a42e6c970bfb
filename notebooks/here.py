"""What the notebooks share: is a Hopper GPU here, the kept records, tables and plots as output."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cuswiglu import environment
from cuswiglu.bench import record
from cuswiglu.bench.report import summaries

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
WIDTH = 120  # characters of a table
DPI = 80
COLOURS = 256
SKIPPED = "skipped: "

sys.path.append(str(FOLDER.parent))  # where `benchmarks` is


def gpu(what: str = "this cell") -> bool:
    """Whether cuswiglu's kernels run here; if not, print that `what` is skipped, and why."""
    there = environment.collect()
    if there.backend == "sm90":
        return True
    print(f"{SKIPPED}{what}: no Hopper GPU here ({there.reason})")
    return False


def kept(suite: str) -> record.Record | None:
    """The record of a suite in results/, measured on an H200; None, said in print, if none is."""
    path = RESULTS / f"{suite}_h200.json"
    if path.exists():
        return record.load(path)
    print(
        f"{SKIPPED}suite {suite}: no record of it is kept here. To make it, on a Hopper GPU:\n"
        f"    cuswiglu bench --suite {suite} --json notebooks/results/{path.name}"
    )
    return None


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    """A table to `show`."""
    made = summaries.rich_modules().table.Table(*headings, box=None)
    for row in rows:
        made.add_row(*map(str, row))
    return made


def show(made: Any) -> None:
    """Print a table of rich's, as `table` makes it, as text."""
    console = summaries.rich_modules().console.Console(
        file=sys.stdout, width=WIDTH, color_system=None, force_jupyter=False, markup=True
    )
    with console.capture() as printed:
        console.print(made)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def drawn(figure: Any) -> Any:
    """A matplotlib figure as a small PNG, of at most `COLOURS` colours; None if there is none."""
    if figure is None:
        return None
    import PIL.Image
    from IPython.display import Image

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=DPI)
    PIL.Image.open(full).convert("RGB").quantize(COLOURS).save(small, "png", optimize=True)
    return Image(small.getvalue())
