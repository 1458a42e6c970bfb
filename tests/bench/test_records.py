"""Benchmark records: written whole or not at all, read back, refused when damaged; cells."""

from __future__ import annotations

import json
import os

import pytest

from cuswiglu.bench import record as records
from cuswiglu.bench import suites
from cuswiglu.bench.cells import cell
from cuswiglu.bench.suites import SUITES, find
from tests.helpers.bench_records import DUAL, FAILED, outcomes, record, row, variants


def test_a_record_is_read_as_it_was_written(tmp_path):
    written = record(
        row("0.5b", 512, outcomes(jax=250.0) | variants(dual=99.0)),
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
    one = row("0.5b", 512, outcomes(bare=110.0) | {"jax": FAILED} | variants(dual=99.0))
    assert one.us("auto") == 100.0
    assert one.us("jax") is None
    assert one.us("quack") is None
    assert one.us("jax", "quack", "bare", "auto") == 100.0
    assert list(one.variants()) == [DUAL]


def test_suites_have_the_papers_cells():
    assert len(SUITES["paper"].cells) == len(SUITES["mlp"].cells) == 28
    assert len(SUITES["quick"].cells) == 4
    assert set(SUITES["quick"].cells) <= set(SUITES["paper"].cells)
    assert (cell("14b", 512).k, cell("14b", 512).n) == (5120, 13824)


def test_cells_are_chosen_by_model_and_tokens():
    chosen = SUITES["paper"].select(["0.5b", "7b"], [512, 2048])
    assert [(one.model, one.m) for one in chosen] == [
        ("0.5b", 512),
        ("0.5b", 2048),
        ("7b", 512),
        ("7b", 2048),
    ]
    assert SUITES["mlp"].select() == list(SUITES["mlp"].cells)


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
        SUITES[suite].select(models, tokens)


def test_a_record_of_another_format_is_refused_with_the_command_that_makes_it_anew(tmp_path):
    path = tmp_path / "old.json"
    path.write_text('{"format": 0, "suite": "decode", "cells": []}')
    with pytest.raises(ValueError, match=r"format 0.*cuswiglu bench --suite decode --json NEW"):
        records.load(path)


def test_a_record_of_an_unknown_suite_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="unknown suite 'breakfast': there are activations, "):
        find("breakfast")


def test_a_suite_is_found_by_being_a_module_of_the_folder(tmp_path, monkeypatch):
    (tmp_path / "breakfast.py").write_text(
        "from dataclasses import replace\n"
        "from cuswiglu.bench.suites.quick import SUITE\n"
        "SUITE = replace(SUITE, name='breakfast')\n"
    )
    monkeypatch.setattr(suites, "__path__", [*suites.__path__, str(tmp_path)])
    found = suites.discover()
    assert set(found) == {*SUITES, "breakfast"}
    assert found["breakfast"].select() == SUITES["quick"].select()
