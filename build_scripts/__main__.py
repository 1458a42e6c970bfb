"""`python -m build_scripts`: build the cubins in place, for work on the kernels."""

import sys

from .build import build
from .compile import CompileError
from .toolchain import ToolchainError

if __name__ == "__main__":
    try:
        build()
    except (CompileError, ToolchainError) as error:
        sys.exit(f"error: {error}")
