"""Threads, streams, graphs, plans and processes for minutes, every result compared.

`python -m tests.gpu.stress --minutes 5 --json stress.json` prints a line for each part; the exit
status is 1 if anything is wrong. A part that hangs ends the run with the stacks of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import pathlib
import sys
import time
import traceback
from collections.abc import Callable

from tests.gpu import stress_chains, stress_plans, stress_processes, stress_threads
from tests.gpu.verdicts import Outcome, Report, judged

#: A part may take so much longer than it was given, to get ready and to end (seconds).
MARGIN_S = 90.0
#: Part -> its share of the minutes, and what it does for so many seconds. Those that start
#: processes take as long as these do.
PARTS: dict[str, tuple[float, Callable[[float], Outcome]]] = {
    "threads": (0.35, stress_threads.threads),
    "fresh": (0.05, stress_threads.fresh_threads),
    "replay": (0.2, stress_threads.replay),
    "chains": (0.25, stress_chains.chains),
    "plans": (0.15, stress_plans.plans),
    **{
        name: (0.0, functools.partial(stress_processes.run_all, name))
        for name in stress_processes.SCRIPTS
    },
}


def run_part(name: str, seconds: float) -> tuple[Outcome, float]:
    """What a part reports, an error included; and how long it took."""
    begun = time.monotonic()
    try:
        outcome = PARTS[name][1](seconds)
    except Exception:
        outcome = Outcome(0, "done", (traceback.format_exc().strip(),))
    return outcome, time.monotonic() - begun


def _minutes(text: str) -> float:
    found = float(text)
    if not 0 < found <= 24 * 60:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most a day, got {text}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run all that is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.stress", description=__doc__)
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="of all parts together")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this one")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the same, to read")
    options = parser.parse_args(arguments)
    parts = list(dict.fromkeys(options.part or PARTS))
    shares = sum(PARTS[name][0] for name in parts)
    report = Report(parts, options.json, {"minutes": options.minutes})
    report.write()
    for name in parts:
        given = 60 * options.minutes * PARTS[name][0] / (shares or 1)
        faulthandler.dump_traceback_later(given + MARGIN_S, exit=True, file=sys.__stderr__)
        outcome, seconds = run_part(name, given)
        faulthandler.cancel_dump_traceback_later()
        verdict = judged(name, outcome, seconds)
        print(verdict, flush=True)
        report.add(verdict)
    print("ok" if report.good else "FAIL", flush=True)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
