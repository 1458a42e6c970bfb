"""Code in a fresh interpreter: what it imports and sets stays there."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def printed(code, *, timeout=120, **environment):
    """What code prints; it is run in the repository's folder, which it imports from.

    `environment` holds variables beside this process's.
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=TESTS.parent,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def printed_by_jax(code, *, devices):
    """The same of code that uses JAX on so many virtual CPU devices, and imports from tests/."""
    return printed(
        code,
        timeout=300,
        XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}",
        JAX_PLATFORMS="cpu",
        PYTHONPATH=str(TESTS.parent),
    )
