"""The command line: `cuswiglu`, also `python -m cuswiglu`. Each command is a module."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from . import bench, check, demo, info, tune

_COMMANDS = (info, demo, bench, check, tune)


def parser() -> argparse.ArgumentParser:
    """Make the whole command line's grammar."""
    main = argparse.ArgumentParser(
        prog="cuswiglu", description="Fused SwiGLU and gated-MLP kernels for Hopper GPUs."
    )
    main.add_argument("--version", action="version", version=f"cuswiglu {__version__}")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands).set_defaults(run=command.run)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"cuswiglu: error: {error}", file=sys.stderr)
        return 1
    return status
