"""`python -m benchmarks`: a kept record beside the targets and the paper's claims."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cuswiglu.bench.record import load
from cuswiglu.bench.report import summaries
from cuswiglu.bench.suites import find

from . import tables
from .paper_claims import SUITES


def main(arguments: Sequence[str] | None = None) -> int:
    """Print; returns 1 if there is nothing to read, and 0 else, targets met or missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--from",
        dest="sources",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="records that `cuswiglu bench --json` has kept",
    )
    options = parser.parse_args(arguments)
    try:
        for path in options.sources:
            _print(path)
    except (ImportError, OSError, ValueError) as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 1
    return 0


def _print(path: Path) -> None:
    console = summaries.rich_modules().console.Console(width=None if sys.stdout.isatty() else 120)
    record = load(path)
    shown = {"targets": tables.targets_table}
    if find(record.suite).name in SUITES:
        shown = {
            "the paper's claims, cell by cell": tables.cell_claims_table,
            "the paper's claims": tables.claims_table,
        } | shown
    for title, table in shown.items():
        console.print(f"[bold]{record.suite}: {title}[/]")
        console.print(table(record))
        console.print()


if __name__ == "__main__":
    sys.exit(main())
