"""`python -m build_scripts`: build the cubins in place, for work on the kernels."""

import argparse
import sys

from .build import ABLATED, build
from .compile import CompileError
from .toolchain import ToolchainError
from .variants import ABLATIONS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m build_scripts", description=__doc__)
    parser.add_argument(
        "--ablations",
        action="store_true",
        help=f"build kernels that exist only to be timed, into {ABLATED} "
        "(`cuswiglu bench --also` takes them)",
    )
    try:
        if parser.parse_args().ablations:
            build(ABLATED, ABLATIONS)
        else:
            build()
    except (CompileError, ToolchainError) as error:
        sys.exit(f"error: {error}")
