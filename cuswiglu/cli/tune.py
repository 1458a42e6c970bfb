"""`cuswiglu tune`: measure which kernel is fastest on this GPU, and remember it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import autotune
from ..arrays import cupy_module
from ..common import files
from ..models.shapes import SHAPES
from ..runtime import plan
from ..selection import select, tuned
from .types import positive, positives


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the grammar of `tune` to the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "tune", help="measure which kernel is fastest on this GPU"
    )
    parser.add_argument(
        "--shape",
        action="append",
        choices=sorted(SHAPES),
        help="a model whose MLP is tuned; may be given more than once",
    )
    parser.add_argument(
        "--hidden", type=positive, metavar="K", help="hidden size, with --intermediate"
    )
    parser.add_argument("--intermediate", type=positive, metavar="N", help="intermediate size")
    parser.add_argument(
        "--tokens", type=positives, default=[512, 1024, 2048, 4096], metavar="M,..."
    )
    parser.add_argument("--layout", choices=["k", "n"], default="k", help="weights along K or N")
    parser.add_argument("--rounds", type=positive, default=5, help="turns each kernel takes (5)")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write here (the user's cache by default)"
    )
    parser.add_argument(
        "--fit",
        action="store_true",
        help="measure every kernel and fit the cost model's rates too",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Measure, print as it goes, write the table."""
    sizes = [SHAPES[name] for name in options.shape or []]
    if bool(options.hidden) != bool(options.intermediate):
        raise ValueError("--hidden and --intermediate are given together, or neither")
    if options.hidden:
        sizes.append((options.hidden, options.intermediate))
    if not sizes:
        raise ValueError("nothing to tune: give --shape, or --hidden and --intermediate")
    shapes = [
        shape
        for k, n in sizes
        for shape in autotune.mlp_shapes(k, n, options.tokens, options.layout)
    ]
    device = plan.device_info(cupy_module().cuda.Device().id)
    if not device.runs_kernels:
        raise ValueError(f"tune needs a Hopper GPU (compute capability 9.0), got {device.name}")
    path = options.output or tuned.cache_path()
    _check_writable(path)
    measured: dict[tuned.Shape, dict[autotune.Tried, float]] = {}
    for shape in _progress(shapes):
        measured[shape] = autotune.measure(shape, rounds=options.rounds, everything=options.fit)
        _, entry = autotune.best(shape, measured[shape])
        portable = measured[shape][autotune.PORTABLE]
        print(
            f"M={shape.m} N={shape.n} K={shape.k} {'gate and up' if shape.gated else 'down'}: "
            f"{entry.variant} {entry.us:.1f} us, {portable / entry.us:.2f} of cuBLAS's speed",
            flush=True,
        )
    table = tuned.merge(
        tuned.read(path),
        [autotune.best(shape, times) for shape, times in measured.items()],
        device.name,
        select.measured_with(device),
    )
    if options.fit:
        table.rates.update(autotune.fit_rates(measured, device.multiprocessors))
    tuned.write(table, path)
    print(f"wrote {len(table.choices)} choices to {path}")
    return 0


def _check_writable(path: Path) -> None:
    """Refuse before minutes of measuring, not after them."""
    try:
        files.make_folder(path)
    except OSError as error:
        raise OSError(f"{error}: pass --output FILE in a folder that can be written") from error


def _progress(shapes: list[tuned.Shape]) -> Any:
    """Put the shapes behind a progress bar, where rich is installed."""
    try:
        from rich.progress import track
    except ImportError:
        return shapes
    return track(shapes, description="tuning", transient=True)
