"""compute-sanitizer finds nothing in any instance."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent / "sanitized.py"


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_sanitizer_is_clean(tool):
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on the PATH")
    # Only our own kernels: the random numbers' and the casts' are CuPy's to check.
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9"]
    command += ["--report-api-errors", "no"]  # cuda-python probes for functions newer drivers have
    command += ["--kernel-name", "kernel_substring=pingpong", "--kernel-name"]
    command += ["kernel_substring=cooperative", "--kernel-name", "kernel_substring=decode"]
    command += [sys.executable, str(SCRIPT)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert "ERROR SUMMARY: 0 errors" in result.stdout or "0 hazards" in result.stdout
