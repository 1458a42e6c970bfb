"""`cuswiglu check`: how exact every kernel is on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import environment
from ..bench.report.plots import matplotlib_modules
from ..bench.suites import find
from ..check import contenders, plots, report, tables
from ..check import run as checks
from .types import names

SEED = 0


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the grammar of `check` to the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="how exact every kernel is here, beside torch eager, against FP64",
        description="Computes gate and up of Qwen-2.5's models (28 cells) and of SmolLM2-135M "
        "with every kernel, torch eager and CuPy, for several distributions of inputs, and "
        "compares all elements with FP64. On the CPU it checks the numpy backend, on at most 64 "
        "tokens a cell. The exit status is 1 if a target is missed.",
    )
    parser.add_argument("--quick", action="store_true", help="4 cells and 3 layers only")
    parser.add_argument("--models", type=names, metavar="LIST", help="only these: 0.5b,7b")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where to keep the report, case after case"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw a histogram of ulps (PNG)")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="no run: a JSON that was kept"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Check or read, print, draw; returns 0 if every target is reached."""
    if options.plots:  # a missing matplotlib is told before the run
        matplotlib_modules()
    if options.source:
        found = report.load(options.source)
        _say(*tables.legend(found), tables.heading(), *map(tables.line, found.cases))
    else:
        found = _check(options)
    _say("", *tables.contenders(found), "", *tables.targets(found))
    if options.plots:
        _say(*(f"drawn: {path}" for path in plots.draw(found, options.plots)))
    return 1 if found.missed() else 0


def _check(options: argparse.Namespace) -> report.Report:
    here = environment.collect()
    if options.device == "cuda" and here.backend == "numpy":
        raise RuntimeError(f"--device cuda needs a CUDA GPU: {here.reason}")
    backend = "numpy" if options.device == "cpu" else here.backend
    reason = here.reason or f"they need arrays on the GPU, --device is {options.device}"
    on_gpu = backend != "numpy"
    cells = find("quick" if options.quick else "paper").select(options.models)
    wanted, missing = checks.cases(cells, quick=options.quick, on_gpu=on_gpu)
    found = contenders.find(backend, reason)
    begun = checks.begin(found, missing, SEED)
    _say(*tables.legend(begun), tables.heading())
    return checks.run(
        begun,
        wanted,
        found.contenders,
        on_gpu=on_gpu,
        path=options.json,
        finished=lambda row: _say(tables.line(row)),
    )


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)
