"""`cuswiglu bench`: measure, or read what was measured, and print what it comes to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bench.cells import Cell
from ..bench.record import CellRecord, Record, load
from ..bench.report import plots, summaries, tables
from ..bench.run import run as runs
from ..bench.suites import SUITES, Suite, find
from .types import names, positives

SEED = 0


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the grammar of `bench` to the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="time every kernel beside cuBLAS, torch, JAX and QuACK; plots",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Times calls of ours on the sizes of Qwen-2.5's models, beside cuBLAS's\n"
        "products and what is installed of torch, JAX, QuACK, tokamax and\n"
        "flash-swiglu-mlp, on rotating weights, in turns. Suites:\n\n"
        + "\n".join(f"  {suite.name:<16} {suite.about}" for suite in SUITES.values()),
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--suite", choices=SUITES)
    source.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="no run: a JSON that was kept"
    )
    parser.add_argument("--models", type=names, metavar="LIST", help="only these: 0.5b,7b")
    parser.add_argument("--tokens", type=positives, metavar="LIST", help="only these: 512,2048")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where to keep the record, cell after cell"
    )
    parser.add_argument("--resume", action="store_true", help="go on with what is in --json")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw plots (PNG)")
    parser.add_argument(
        "--also",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="kernels built elsewhere take part too (python -m build_scripts --ablations)",
    )
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contender (9)")
    parser.add_argument(
        "--limit-seconds", type=float, metavar="S", help="start no cell after that time"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Measure or read, print, draw; returns the exit status."""
    rich = summaries.rich_modules()
    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    if options.plots:  # a missing matplotlib is told before the run
        plots.matplotlib_modules()
    wanted: Sequence[Cell]
    if options.source:
        record = load(options.source)
        suite = find(record.suite)
        wanted = suite.cells
        _head(console, suite, record)
    else:
        suite = find(options.suite)
        _check(options, suite)
        wanted = suite.select(options.models, options.tokens)
        record = _measure(options, suite, wanted, console)
    console.print()
    _say(console, *tables.notes(record, wanted, suite.remarks))
    for title, table in suite.tables.items() if record.cells else ():
        console.print()
        console.print(f"[bold]{title}[/]")
        console.print(table(record))
    if options.plots:
        drawn = plots.draw(record, suite.plots, options.plots)
        _say(console, *(f"drawn: {path}" for path in drawn))
    return 0


def _check(options: argparse.Namespace, suite: Suite) -> None:
    if options.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {options.rounds}")
    if options.also and not suite.takes_kernels:
        *first, last = (one.name for one in SUITES.values() if one.takes_kernels)
        raise ValueError(
            f"--also is for suites {', '.join(first)} and {last}, not for suite {suite.name}"
        )
    if options.resume and not options.json:
        raise ValueError("--resume needs --json FILE, the record to go on with")


def _measure(
    options: argparse.Namespace, suite: Suite, wanted: Sequence[Cell], console: Any
) -> Record:
    begun = runs.begin(suite.name, SEED, options.rounds, options.json, resume=options.resume)

    def started(record: Record) -> None:
        session = record.sessions[-1]
        _say(console, tables.session_text(session))
        _say(console, *(f"warning: {warning}" for warning in session.warnings))
        _say(console, *(f"missing: {name}: {why}" for name, why in session.missing.items()))
        _head(console, suite, record)

    def finished(record: Record, row: CellRecord) -> None:
        _say(console, tables.line(suite.columns, record, row))

    with console.status("looking at the machine") as status:
        return runs.run(
            begun,
            wanted,
            lambda: suite.find(options.also),
            options.json,
            limit_s=options.limit_seconds,
            method=suite.method,
            listener=runs.Listener(started, finished, doing=status.update),
        )


def _head(console: Any, suite: Suite, record: Record) -> None:
    """Print what a record has, up to its last cell."""
    _say(console, suite.legend, tables.heading(suite.columns))
    _say(console, *(tables.line(suite.columns, record, row) for row in record.cells))


def _say(console: Any, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
