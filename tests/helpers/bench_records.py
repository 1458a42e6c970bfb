"""Small records of the benchmark; their times are invented."""

from __future__ import annotations

from cuswiglu.bench.cells import cell
from cuswiglu.bench.record import CellRecord, Outcome, Record, Session
from cuswiglu.bench.suites import SUITES

SESSION = Session(
    started="2026-11-29T12:00:00+00:00",
    gpu={"name": "NVIDIA H200", "driver": "580.1", "power_limit_w": 700.0},
    environment={"cuswiglu": "0.1.0", "packages": {"numpy": "2.4"}},
    kernels="0123456789abcdef",
    missing={"quack": "quack.gemm_interface cannot be imported: No module named 'quack'"},
)
EXACT, ROUNDED = 0.0016, 0.0031
SYNC, INTERLEAVE, DUAL = (
    "sync_pingpong_128x128_1x1",
    "interleave_cooperative_256x128_2x1",
    "dual_pingpong_128x96_2x1",
)


def outcomes(auto=100.0, **times):
    """Outcomes by name: `auto` took that many microseconds; underscores become dashes."""
    made = {"auto": Outcome(auto, EXACT, 0.0002, choice=DUAL)}
    for name, time in times.items():
        made[name.replace("_", "-")] = Outcome(time, ROUNDED, 0.0015)
    return made


def variants(sync=None, interleave=None, dual=None):
    """Outcomes of one variant of each family."""
    times = {SYNC: sync, INTERLEAVE: interleave, DUAL: dual}
    return {
        name: Outcome(time, EXACT, 0.0002, family=name.partition("_")[0])
        for name, time in times.items()
        if time is not None
    }


def row(model, m, made, **fields):
    gpu = {"sm_mhz": [1500.0, 1700.0, 1980.0], "watts": [600.0, 690.0], "celsius": 60.0}
    return CellRecord(cell(model, m), 0, 3, 1.5, fields.pop("gpu", gpu), made)


def record(*rows, suite="paper"):
    return Record(suite, 0, 9, (SESSION,), rows)


def full(suite, made):
    """A record of every cell, all with the same outcomes."""
    return record(*(row(one.model, one.m, made) for one in SUITES[suite].cells), suite=suite)


FAILED = Outcome(error="OutOfMemoryError: no memory", captured=False)
