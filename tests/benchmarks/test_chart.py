"""README's chart: drawn from the kept records, the same each time, small, and kept up to date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import chart
from cuswiglu.bench.record import load
from cuswiglu.bench.report import figures

pytest.importorskip("matplotlib")

KEPT = Path(__file__).parents[2] / "docs" / "images" / chart.NAME
MAX_BYTES = 60_000


@pytest.fixture(scope="module")
def records():
    return {suite: load(chart.RESULTS / f"{suite}_h200.json") for suite in chart.SUITES}


@pytest.fixture(scope="module")
def drawn(records):
    return chart.draw(records)


def texts(svg):
    """Everything that is written in a picture."""
    return {node.text for node in ElementTree.fromstring(svg).iter() if node.text}


def test_every_bar_is_labelled_with_its_mean(drawn, records):
    written = texts(drawn)
    for group, bars in chart.GROUPS.items():
        assert group in written
        for bar in bars:
            mean = figures.geomean(one.value for one in chart.ratios(bar, records))
            assert {bar.label, f"{mean:.2f}x"} <= written


def test_the_versions_of_the_peers_and_the_gpu_are_told(drawn):
    (said,) = (text for text in texts(drawn) if text.startswith("Qwen-2.5"))
    for words in ("NVIDIA H200", "torch 2", "quack-kernels 0", "nvidia-cublas 13"):
        assert words in said


def test_the_same_records_give_the_same_file_and_a_small_one(drawn, records):
    assert chart.draw(records) == drawn
    assert len(drawn) < MAX_BYTES


def test_the_kept_chart_is_of_the_kept_records(drawn):
    assert texts(KEPT.read_bytes()) == texts(drawn)


def test_the_command_writes_it_into_a_folder(tmp_path, drawn, capsys):
    assert chart.main(["--out", str(tmp_path / "images")]) == 0
    assert (tmp_path / "images" / chart.NAME).read_bytes() == drawn
    assert "drawn: " in capsys.readouterr().out


def test_a_record_without_a_peer_is_refused_by_name(records):
    bare = replace(
        records["mlp"],
        cells=tuple(
            replace(row, outcomes={"auto": row.outcomes["auto"]}) for row in records["mlp"].cells
        ),
    )
    with pytest.raises(ValueError, match="suite mlp has no torch-compile"):
        chart.draw(records | {"mlp": bare})


def test_a_missing_record_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(chart, "RESULTS", tmp_path)
    assert chart.main(["--out", str(tmp_path)]) == 1
    assert "paper_h200.json" in capsys.readouterr().err
