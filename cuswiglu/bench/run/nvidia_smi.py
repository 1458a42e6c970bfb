"""nvidia-smi: what GPU this is, who else uses it, its clocks, power and heat during a run."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Bits of clocks_event_reasons.active (NVML API reference, nvmlClocksEventReasons).
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
#: Reasons that say a cell's times are not the card's own; the power cap holds on every busy H200.
SLOWDOWNS = (
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
)
BUSY_PERCENT = 5
# Drivers before 535 know the reasons under the older name only.
_REASON_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_SAMPLED = "clocks.sm,power.draw,temperature.gpu,utilization.gpu"
_STATIC = "name,driver_version,power.limit,clocks.max.sm,memory.total"
_INTERVAL_S = 0.25


class SmiError(RuntimeError):
    """nvidia-smi is missing, or does not answer."""


def query(what: str, fields: str, gpu: str) -> list[list[str]]:
    """Query `nvidia-smi --query-<what>=<fields>` for one GPU, named by its PCI bus id."""
    command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            [*command, f"--id={gpu}"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmiError(f"nvidia-smi cannot be run: {error}") from error
    if answer.returncode != 0:
        said = (answer.stdout + answer.stderr).strip()
        raise SmiError(f"nvidia-smi failed: {said[:200]}")
    return [[part.strip() for part in row.split(",")] for row in answer.stdout.splitlines() if row]


def identity(gpu: str) -> dict[str, Any]:
    """Look up name, driver, power limit (W), highest SM clock (MHz) and memory (MiB) of a GPU."""
    (row,) = query("gpu", _STATIC, gpu)
    name, driver, *numbers = row
    watts, megahertz, mebibytes = (number(text) for text in numbers)
    return {
        "name": name,
        "driver": driver,
        "power_limit_w": watts,
        "max_sm_mhz": megahertz,
        "memory_mib": mebibytes,
    }


def busy(gpu: str) -> list[str]:
    """Tell why a GPU is not ours alone; call it before this process touches the GPU."""
    found = []
    for _ in range(3):
        used = number(query("gpu", "utilization.gpu", gpu)[0][0])
        if used is not None and used > BUSY_PERCENT:
            found.append(f"the GPU was {used:.0f}% busy before the run")
            break
        time.sleep(_INTERVAL_S)
    users = query("compute-apps", "pid,process_name", gpu)
    others = [user for user in users if user[0] != str(os.getpid())]
    if others:
        names = ", ".join(" ".join(reversed(row)) for row in others)
        found.append(f"other processes were on the GPU before the run: {names}")
    return found


def number(text: str) -> float | None:
    """Read a number; None for "[N/A]" and the like."""
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Sample:
    """The GPU at one time: SM clock (MHz), power (W), temperature (C), utilisation (%)."""

    sm_mhz: float | None
    watts: float | None
    celsius: float | None
    utilisation: float | None
    reasons: int


def parse(row: Sequence[str]) -> Sample:
    """Read a sample from nvidia-smi's fields, the reasons last, as "0x0000000000000004"."""
    values = [number(text) for text in row[:4]]
    try:
        reasons = int(row[4], 16)
    except ValueError:
        reasons = 0
    return Sample(values[0], values[1], values[2], values[3], reasons)


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Sum up clocks (lowest, median, highest), power (median, highest), heat, and limits.

    Of the samples with the GPU at work, if there are any; the rest is compilation.
    """
    working = [s for s in samples if s.utilisation is not None and s.utilisation >= 50]
    samples = working or samples
    if not samples:
        return {}
    clocks = [s.sm_mhz for s in samples if s.sm_mhz is not None]
    watts = [s.watts for s in samples if s.watts is not None]
    heat = [s.celsius for s in samples if s.celsius is not None]
    mask = 0
    for sample in samples:
        mask |= sample.reasons
    return {
        "samples": len(samples),
        "sm_mhz": [min(clocks), statistics.median(clocks), max(clocks)] if clocks else None,
        "watts": [statistics.median(watts), max(watts)] if watts else None,
        "celsius": max(heat, default=None),
        "reasons": [name for bit, name in REASONS.items() if mask & bit],
    }


class Monitor:
    """Sampler of a GPU in a background thread: ``with Monitor(gpu) as monitor``.

    `trouble` says why there are no samples, if nvidia-smi does not answer.
    """

    def __init__(self, gpu: str) -> None:
        self._gpu = gpu
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.trouble = ""

    def __enter__(self) -> Monitor:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join()

    def take(self) -> dict[str, Any]:
        """Sum up the samples since the last call."""
        taken, self._samples = self._samples, []
        return summary(taken)

    def _run(self) -> None:
        fields = f"{_SAMPLED},{_REASON_FIELDS[0]}"
        try:
            try:
                self._sample(fields)
            except SmiError:
                fields = f"{_SAMPLED},{_REASON_FIELDS[1]}"
                self._sample(fields)
            while not self._stop.wait(_INTERVAL_S):
                self._sample(fields)
        except (SmiError, ValueError, IndexError) as error:
            self.trouble = str(error)

    def _sample(self, fields: str) -> None:
        (row,) = query("gpu", fields, self._gpu)
        self._samples.append(parse(row))
