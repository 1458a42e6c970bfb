"""compute-sanitizer over every compiled variant: `python -m tests.gpu.sanitize`.

A line for each tool and family; the exit status is 1 if anything is found. It takes two minutes;
`--tool` and `--family` choose.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

from cuswiglu.kernels.manifest import variants

SCRIPT = pathlib.Path(__file__).parent / "sanitized.py"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: In the names of our kernels: those that draw and cast are CuPy's to check.
OURS = ("pingpong", "cooperative", "resident", "decode")
LIMIT_S = 1200  # of a tool and a family
_FOUND = 9  # exit status
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
_LAUNCHES = re.compile(r"^(\d+) launches$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What a tool said of some families: clean, if all `launches` ran and it found nothing."""

    clean: bool
    launches: int
    said: str
    text: str


def families() -> list[str]:
    """Of all compiled variants."""
    return list(dict.fromkeys(kernel.family for kernel in variants()))


def find() -> str:
    """The path of compute-sanitizer.

    Raises
    ------
    FileNotFoundError
    """
    found = shutil.which("compute-sanitizer")
    if found is None:
        raise FileNotFoundError(
            "compute-sanitizer is not on the PATH: it comes with the CUDA toolkit, in its bin"
        )
    return found


def sanitize(tool: str, of: list[str], limit_s: float = LIMIT_S) -> Result:
    """Run a tool over every variant of some families."""
    command = [find(), "--tool", tool, "--error-exitcode", str(_FOUND)]
    command += ["--report-api-errors", "no"]  # cuda-python probes for functions newer drivers have
    for name in OURS:
        command += ["--kernel-name", f"kernel_substring={name}"]
    command += [sys.executable, str(SCRIPT), *of]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return Result(False, 0, f"not done after {limit_s:g} s", "")
    text = ran.stdout + ran.stderr
    launched, summary = _LAUNCHES.search(text), _SUMMARY.search(text)
    launches = int(launched[1]) if launched else 0
    if not launches:
        return Result(False, 0, f"nothing was launched (exit status {ran.returncode})", text)
    if summary is None:
        return Result(False, launches, f"no summary (exit status {ran.returncode})", text)
    count = int(summary[1] or summary[2] or 0)
    said = f"{count} found" if count else "nothing found"
    return Result(ran.returncode == 0 and count == 0, launches, said, text)


def blind(limit_s: float = LIMIT_S) -> str | None:
    """What is wrong if memcheck does not see a kernel write behind its result; else None."""
    result = sanitize("memcheck", ["--overrun"], limit_s)
    found = re.search(r"ERROR SUMMARY: [1-9]", result.text) and "Invalid __global__" in result.text
    return None if found else f"memcheck does not see a kernel that writes too far:\n{result.text}"


def main(arguments: list[str] | None = None) -> int:
    """Run all that is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sanitize", description=__doc__)
    parser.add_argument("--tool", action="append", choices=TOOLS)
    parser.add_argument("--family", action="append", choices=families())
    parser.add_argument("--logs", type=pathlib.Path, metavar="DIR", help="keep what is found there")
    options = parser.parse_args(arguments)
    if (fault := blind()) is not None:
        print(fault)
        return 1
    wrong = 0
    for tool in options.tool or TOOLS:
        for family in options.family or families():
            begun = time.monotonic()
            result = sanitize(tool, [family])
            seconds = time.monotonic() - begun
            verdict = "clean" if result.clean else "FAIL"
            print(
                f"{tool:<10} {family:<13} {result.launches:>4} launches {seconds:>6.0f} s  "
                f"{verdict}: {result.said}",
                flush=True,
            )
            if result.clean:
                continue
            wrong += 1
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                (options.logs / f"{tool}_{family}.txt").write_text(result.text)
            else:
                print(result.text[-4000:], flush=True)
    print("FAIL" if wrong else "clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FileNotFoundError as error:
        sys.exit(str(error))
