"""`cuswiglu info`: what is here, and which backend will be used."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .. import environment


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the grammar of `info` to the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info", help="what is here, and which backend will be used"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for a bug report")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print it; returns the exit status."""
    here = environment.collect()
    if options.json:
        print(json.dumps(here.as_dict(), indent=2))
        return 0
    lines = {
        "cuswiglu": here.cuswiglu,
        "Python": f"{here.python} on {here.platform}",
        "packages": ", ".join(f"{name} {version}" for name, version in here.packages.items()),
        "variables": ", ".join(f"{name}={value}" for name, value in here.variables.items())
        or "none that matter",
        "driver": f"{here.driver or 'unknown version'}, CUDA {here.driver_cuda}"
        if here.driver_cuda
        else "none usable",
        "GPUs": ", ".join(
            f"{gpu.name} (compute capability {gpu.capability}, {gpu.multiprocessors} SMs)"
            for gpu in here.gpus
        )
        or "none",
        "kernels": f"{here.kernels} cubins for sm_90a, {here.kernel_bytes / 1024:.0f} KiB, "
        f"{here.fingerprint} from sources {here.sources}"
        if here.kernels
        else "none",
        "built with": ", ".join(f"{name} {version}" for name, version in here.toolchain.items()),
        "tuned": "; ".join(
            f"{table.whose}: {table.unused or f'{table.choices} choices'}" for table in here.tables
        ),
        "backend": here.backend + (f": {here.reason}" if here.reason else ""),
    }
    for name, text in lines.items():
        print(f"{name + ':':<12}{text}")
    for text in here.warnings:
        print(f"{'warning:':<12}{text}")
    return 0
