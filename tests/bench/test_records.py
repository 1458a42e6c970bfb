"""Benchmark records: written whole or not at all, read back, refused when damaged.

`outcomes`, `row` and `record` make small records for the other tests; their times are invented.
"""

from __future__ import annotations

import json
import os

import pytest

from cuswiglu.bench import record as records
from cuswiglu.bench.cells import SUITES, cell, select
from cuswiglu.bench.record import CellRecord, Outcome, Record, Session

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


def instances(sync=None, interleave=None, dual=None):
    """Outcomes of one instance of each family."""
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
    return record(*(row(one.model, one.m, made) for one in SUITES[suite]), suite=suite)


FAILED = Outcome(error="OutOfMemoryError: no memory", captured=False)


def test_a_record_is_read_as_it_was_written(tmp_path):
    written = record(
        row("0.5b", 512, outcomes(jax=250.0) | instances(dual=99.0)),
        row("3b", 4096, outcomes() | {"jax": FAILED}, gpu={}),
    )
    records.save(written, tmp_path / "paper.json")
    assert records.load(tmp_path / "paper.json") == written


def test_a_write_that_fails_leaves_the_record_before(tmp_path, monkeypatch):
    path = tmp_path / "paper.json"
    first = record(row("0.5b", 512, outcomes()))
    records.save(first, path)

    def disk_full(*paths):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", disk_full)
    with pytest.raises(OSError, match="no space left"):
        records.save(record(row("7b", 512, outcomes())), path)
    assert records.load(path) == first
    assert [file.name for file in tmp_path.iterdir()] == ["paper.json"]


def test_fields_of_a_newer_version_are_ignored(tmp_path):
    path = tmp_path / "paper.json"
    written = record(row("0.5b", 512, outcomes()))
    records.save(written, path)
    content = json.loads(path.read_text())
    content["cells"][0]["mood"] = content["sessions"][0]["mood"] = "good"
    path.write_text(json.dumps(content))
    assert records.load(path) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 200_000,
        "{}",
        '{"format": 99}',
        '{"format": 1, "suite": "breakfast"}',
        '{"format": 1, "suite": "paper", "seed": 0, "rounds": 9, "sessions": [], "cells": [{}]}',
    ],
)
def test_what_is_no_record_is_refused_by_name(tmp_path, text):
    path = tmp_path / "paper.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"paper\.json is no benchmark record"):
        records.load(path)


def test_times_that_are_missing_or_failed_are_no_times():
    one = row("0.5b", 512, outcomes(bare=110.0) | {"jax": FAILED} | instances(dual=99.0))
    assert one.us("auto") == 100.0
    assert one.us("jax") is None
    assert one.us("quack") is None
    assert one.us("jax", "quack", "bare", "auto") == 100.0
    assert list(one.instances()) == [DUAL]


def test_suites_have_the_papers_cells():
    assert len(SUITES["paper"]) == len(SUITES["mlp"]) == 28
    assert len(SUITES["quick"]) == 4
    assert set(SUITES["quick"]) <= set(SUITES["paper"])
    assert (cell("14b", 512).k, cell("14b", 512).n) == (5120, 13824)


def test_cells_are_chosen_by_model_and_tokens():
    chosen = select("paper", ["0.5b", "7b"], [512, 2048])
    assert [(one.model, one.m) for one in chosen] == [
        ("0.5b", 512),
        ("0.5b", 2048),
        ("7b", 512),
        ("7b", 2048),
    ]
    assert select("mlp") == list(SUITES["mlp"])


@pytest.mark.parametrize(
    ("suite", "models", "tokens", "words"),
    [
        ("paper", ["8b"], None, "suite paper has no model 8b: it has 0.5b, 1.5b"),
        ("paper", None, [500], "no token count 500: it has 512, 1024"),
        ("quick", ["0.5b"], [512], "no cell of these models at these token counts"),
    ],
)
def test_cells_that_are_not_there_are_refused(suite, models, tokens, words):
    with pytest.raises(ValueError, match=words):
        select(suite, models, tokens)
