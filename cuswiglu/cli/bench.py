"""`cuswiglu bench`: measure, or read what was measured, and print what it comes to."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench.cells import SUITES
from .types import names

if TYPE_CHECKING:
    from ..bench.cells import Cell
    from ..bench.record import Record

SEED = 0
#: Suites that kernels built elsewhere can take part in.
ALSO = ("paper", "quick", "random")


def add_parser(commands: Any) -> None:
    """The grammar of `bench`, added to the subcommands."""
    bench = commands.add_parser(
        "bench",
        help="time every kernel beside cuBLAS, torch, JAX and QuACK; the paper's claims; plots",
        description="Times gate and up (suites paper and quick) or the whole MLP (suite mlp) of "
        "Qwen-2.5's models: our variants beside cuBLAS's bare products and what is installed of "
        "torch, JAX, QuACK and flash-swiglu-mlp, from CUDA graphs, on rotating weights, in turns. "
        "Suite decode times both for few tokens, beside a copy in GPU memory; host what calls "
        "cost the host, beside torch, CuPy and bare launches; activations what other activations, "
        "biases and FP16 take beside SiLU; jax a stack of layers under jax.jit; "
        "tensor-parallel layers cut over all GPUs, in JAX.",
    )
    source = bench.add_mutually_exclusive_group(required=True)
    source.add_argument("--suite", choices=SUITES)
    source.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="no run: a JSON that was kept"
    )
    bench.add_argument("--models", type=names, metavar="LIST", help="only these: 0.5b,7b")
    bench.add_argument("--tokens", type=_numbers, metavar="LIST", help="only these: 512,2048")
    bench.add_argument(
        "--json", type=Path, metavar="FILE", help="where to keep the record, cell after cell"
    )
    bench.add_argument("--resume", action="store_true", help="go on with what is in --json")
    bench.add_argument("--plots", type=Path, metavar="DIR", help="draw plots (PNG)")
    bench.add_argument(
        "--also",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="kernels built elsewhere take part too (python -m build_scripts --ablations)",
    )
    bench.add_argument("--rounds", type=int, default=9, help="turns of each contender (9)")
    bench.add_argument(
        "--limit-seconds", type=float, metavar="S", help="start no cell after that time"
    )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def run(options: argparse.Namespace) -> int:
    """Measure or read, print, draw; returns the exit status."""
    from ..bench import record as records
    from ..bench import summaries, tables
    from ..bench.cells import select

    rich = summaries.rich_modules()
    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    if options.plots:  # a missing matplotlib is told before the run
        from ..bench import plots

        plots.matplotlib_modules()
    if options.source:
        record = records.load(options.source)
        wanted: Sequence[Cell] = SUITES[record.suite]
        _say(console, tables.legend(record.suite))
        _say(console, tables.heading(record.suite))
        for row in record.cells:
            _say(console, tables.line(record.suite, row, record.sessions))
    else:
        _check(options)
        wanted = select(options.suite, options.models, options.tokens)
        record = _measure(options, wanted, console)
    _report(console, record, wanted)
    if options.plots:
        for path in plots.draw(record, options.plots):
            _say(console, f"drawn: {path}")
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {options.rounds}")
    if options.also and options.suite not in ALSO:
        *first, last = ALSO
        raise ValueError(
            f"--also is for suites {', '.join(first)} and {last}, not for suite {options.suite}"
        )
    if options.resume and not options.json:
        raise ValueError("--resume needs --json FILE, the record to go on with")


def _measure(options: argparse.Namespace, wanted: Sequence[Cell], console: Any) -> Record:
    from ..bench import parallel, tables
    from ..bench.contenders import find
    from ..bench.run import Bench, Listener, begin, run

    bench = Bench(find=functools.partial(find, also=options.also))
    if options.suite == "tensor-parallel":
        bench = parallel.bench()
    begun = begin(options.suite, SEED, options.rounds, options.json, resume=options.resume)

    def started(record: Record) -> None:
        session = record.sessions[-1]
        _say(console, tables.session_text(session))
        for warning in session.warnings:
            _say(console, f"warning: {warning}")
        for name, reason in session.missing.items():
            _say(console, f"missing: {name}: {reason}")
        _say(console, tables.legend(record.suite))
        _say(console, tables.heading(record.suite))
        for row in record.cells:
            _say(console, tables.line(record.suite, row, record.sessions))

    with console.status("looking at the machine") as status:
        return run(
            begun,
            wanted,
            options.json,
            limit_s=options.limit_seconds,
            bench=bench,
            listener=Listener(
                started=started,
                finished=lambda record, row: _say(
                    console, tables.line(record.suite, row, record.sessions)
                ),
                doing=status.update,
            ),
        )


def _report(console: Any, record: Record, wanted: Sequence[Cell]) -> None:
    from ..bench import summaries, tables
    from ..bench.cells import whole_mlp

    console.print()
    for text in tables.notes(record, wanted):
        _say(console, text)
    if not record.cells:
        return
    if record.suite in ("host", "decode", "activations", "jax", "tensor-parallel"):
        _titled(console, "marks", summaries.shows_table(record))
        return
    if not whole_mlp(record.suite):
        _titled(console, "our instances", summaries.instances_table(record))
    _titled(console, "the paper's claims, cell by cell", summaries.cell_claims_table(record))
    _titled(console, "the paper's claims", summaries.claims_table(record))
    _titled(console, "speed", summaries.contenders_table(record))
    _titled(console, "marks", summaries.shows_table(record))


def _titled(console: Any, title: str, table: Any) -> None:
    console.print()
    console.print(f"[bold]{title}[/]")
    console.print(table)


def _say(console: Any, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
