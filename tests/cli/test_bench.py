"""`cuswiglu bench`: tables and plots from a kept record; refusals before anything runs."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest

from cuswiglu import environment
from cuswiglu.bench import record as records
from cuswiglu.bench.record import Outcome
from cuswiglu.bench.report import plots
from cuswiglu.bench.suites import SUITES
from cuswiglu.cli import main
from cuswiglu.kernels import manifest
from tests.helpers.bench_records import FAILED, SESSION, full, outcomes, record, row, variants

pytest.importorskip("rich")

TIMES = {"bare": 112.0, "quack": 106.0, "torch_eager": 150.0, "torch_compile": 140.0, "jax": 160.0}


@pytest.fixture
def kept(tmp_path):
    def keep(made):
        path = tmp_path / f"{made.suite}.json"
        records.save(made, path)
        return path

    return keep


def printed(capsys, *arguments):
    assert main(["bench", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_a_kept_record_is_printed(kept, capsys):
    made = outcomes(100.0, **TIMES) | variants(sync=99.0, interleave=98.0, dual=97.5)
    text = printed(capsys, "--from", kept(full("paper", made)))
    for words in (
        "NVIDIA H200, driver 580.1, 700.0 W",
        "missing: quack: quack.gemm_interface cannot be imported",
        "SM clock 1500 to 1980 MHz, power up to 690 W",
        "not captured in a CUDA graph",
        "dual_pingpong_128x96_2x1",
        "our best variant",
    ):
        assert words in text, words
    assert "not measured" not in text
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("72b")]
    assert lines[0][5:11] == ["1.120", "1.060", "1.500", "1.400", "1.600", "-"]


def test_failures_warnings_and_what_was_not_measured_are_printed(kept, capsys):
    made = record(row("0.5b", 512, outcomes(bare=112.0) | {"jax": FAILED}))
    busy = replace(SESSION, warnings=["the GPU was 40% busy before the run"])
    made = replace(made, sessions=(busy, busy))
    text = printed(capsys, "--from", kept(made))
    assert "failed: 0.5b at M = 512, jax: OutOfMemoryError: no memory" in text
    assert "warning, session 1: the GPU was 40% busy" in text
    assert "measured in 2 sessions" in text
    assert "not measured: 27 cells: 0.5b at M = 1024" in text


def test_the_whole_mlp_has_its_own_table(kept, capsys):
    made = outcomes(100.0, torch_eager=130.0, torch_compile=118.0, fused=110.0, torch_linears=117.0)
    text = printed(capsys, "--from", kept(full("mlp", made)))
    assert "1.100" in text
    assert "our variants" not in text


def test_an_empty_record_is_printed(kept, capsys):
    text = printed(capsys, "--from", kept(record()))
    assert "not measured: 28 cells" in text


def test_a_line_tells_a_failed_contender_from_a_missing_one():
    one = row("0.5b", 512, {"auto": Outcome(error="broken"), "bare": Outcome(110.0), "jax": FAILED})
    by_heading = {
        column.heading: column.text(record(one), one) for column in SUITES["paper"].columns
    }
    assert by_heading["auto us"] == by_heading["jax"] == "failed"
    assert by_heading["bare"] == by_heading["quack"] == "-"


@pytest.mark.parametrize("suite", ["paper", "mlp"])
def test_plots_are_drawn(kept, capsys, tmp_path, suite):
    pytest.importorskip("matplotlib")
    made = outcomes(100.0, **TIMES) | variants(sync=99.0, interleave=98.0, dual=97.5)
    folder = tmp_path / "plots"
    printed(capsys, "--from", kept(full(suite, made)), "--plots", folder)
    names = {"paper_roofline.png", "paper_winners.png"} if suite == "paper" else set()
    names |= {f"{suite}_speedup.png", f"{suite}_utilisation.png"}
    assert {path.name for path in folder.iterdir()} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())


def test_what_cannot_be_drawn_is_left_out(tmp_path):
    pytest.importorskip("matplotlib")
    assert plots.draw(record(), SUITES["paper"].plots, tmp_path) == []
    only_auto = record(row("0.5b", 512, outcomes()))
    drawn = plots.draw(only_auto, SUITES["paper"].plots, tmp_path)
    assert [path.name for path in drawn] == ["paper_utilisation.png"]


def test_a_missing_matplotlib_is_told_before_the_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--suite", "quick", "--plots", str(tmp_path / "plots")]) == 1
    assert "pip install 'cuswiglu[notebooks]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--suite", "quick", "--resume"], "--resume needs --json"),
        (["--suite", "quick", "--rounds", "0"], "--rounds must be at least 1"),
        (["--suite", "paper", "--models", "8b"], "suite paper has no model 8b"),
        (["--from", "/nowhere/at.json"], "No such file"),
    ],
)
def test_options_that_make_no_sense_are_refused(capsys, arguments, words):
    assert main(["bench", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_without_a_gpu_it_says_what_it_needs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(environment, "_gpus", lambda: ("", [], "no NVIDIA driver was found here"))
    path = tmp_path / "quick.json"
    assert main(["bench", "--suite", "quick", "--json", str(path)]) == 1
    assert "needs a CUDA GPU: no NVIDIA driver" in capsys.readouterr().err
    assert not path.exists()


def test_a_source_is_needed_and_only_one(capsys):
    for arguments in ([], ["--suite", "quick", "--from", "x.json"]):
        with pytest.raises(SystemExit):
            main(["bench", *arguments])
    capsys.readouterr()


@pytest.mark.parametrize("suite", ["paper", "mlp"])
def test_what_is_not_installed_is_listed_as_missing(monkeypatch, suite):
    for name in ("torch", "jax", "quack", "flash_swiglu_mlp"):
        monkeypatch.setitem(sys.modules, name, None)
    found = SUITES[suite].find()
    others = {"jax", "quack", "quack-default", "flash-swiglu-mlp"} if suite == "paper" else set()
    expected = {"torch-eager", "torch-compile"} | others
    assert expected <= set(found.missing)
    assert "cannot be imported" in found.missing["torch-eager"]
    names = [contender.name for contender in found.contenders]
    assert names[0] == "auto"
    assert set(names).isdisjoint(found.missing)


def test_every_variant_is_a_contender(monkeypatch):
    names = {"dual_a": True, "plain_c": False, "sync_b": True}
    kernels = [
        types.SimpleNamespace(name=name, family=name[:-2], gated=gated)
        for name, gated in names.items()
    ]
    monkeypatch.setattr(manifest, "variants", lambda: kernels)
    names = [contender.name for contender in SUITES["paper"].find().contenders]
    assert names[:5] == ["auto", "dual_a", "sync_b", "portable", "bare"]

    def damaged():
        raise manifest.KernelsUnavailableError("the kernel manifest is missing")

    monkeypatch.setattr(manifest, "variants", damaged)
    found = SUITES["paper"].find()
    assert found.missing["variants"] == "the kernel manifest is missing"
    assert [contender.name for contender in found.contenders][:3] == ["auto", "portable", "bare"]


def test_quick_is_part_of_paper():
    assert set(SUITES["quick"].cells) < set(SUITES["paper"].cells)
