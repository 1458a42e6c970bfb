"""`cuswiglu check` on the CPU: the report, its targets, its JSON and its plots."""

from __future__ import annotations

import json
import math
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cuswiglu
from cuswiglu.backends import reference
from cuswiglu.bench.cells import Cell
from cuswiglu.bench.contenders import Contender, Runner
from cuswiglu.bench.suites import Suite
from cuswiglu.check import contenders, distributions, plots, report, run, tables
from cuswiglu.check.contenders import UNFUSED
from cuswiglu.check.distributions import DISTRIBUTIONS, Case
from cuswiglu.cli import main
from cuswiglu.common.cache import Cache
from cuswiglu.models import MLPWeights
from cuswiglu.runtime import driver
from tests.helpers import host_torch
from tests.helpers.host_arrays import BF16

SMALL = Cell("small", 192, 256, 40)
CASES = distributions.random_cases([SMALL])


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """No GPU, no torch, no model: small cells alone."""
    monkeypatch.setattr(driver, "installed", lambda: False)
    monkeypatch.setitem(sys.modules, "torch", None)

    def missing():
        raise FileNotFoundError("the model is not installed")

    monkeypatch.setattr(run, "smollm2_path", missing)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(Suite, "select", lambda suite, models: [SMALL])


def checked(*others, cases=CASES):
    found = contenders.find("numpy")
    begun = run.begin(found, {}, 0)
    return run.run(begun, cases, [*found.contenders, *others], on_gpu=False)


def broken(change, name="broken"):
    """A contender of ours whose result is changed."""

    def make(inputs):
        def output():
            reference.swiglu(inputs.x, *inputs.pairs[0], inputs.hidden)
            return change(inputs.hidden)

        return Runner(output, lambda number: None)

    return Contender(name, make)


# Inputs


def arrays(case, seed=0, weights=None):
    """x, gate and up."""
    drawn = distributions.draw(np, case, seed, weights)
    return drawn.x, *drawn.pairs[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_inputs_are_the_same_for_the_same_seed_and_of_unit_size(case):
    first, again, other = (arrays(case, seed) for seed in (0, 0, 1))
    for one, same, different in zip(first, again, other, strict=True):
        assert (one == same).all()
        assert (one != different).mean() > 0.9
    x, gate, up = first
    assert (x.shape, gate.shape, up.shape) == ((40, 192), (192, 256), (192, 256))
    assert x.astype(np.float64).std() == pytest.approx(1, abs=0.05)
    for weight in (gate, up):
        assert weight.T.flags.c_contiguous
        assert weight.astype(np.float64).std() == pytest.approx(192**-0.5, rel=0.05)


def test_outliers_are_channels_that_are_large_in_every_token():
    x = arrays(Case("outliers", Cell("wide", 1024, 8, 64)))[0]
    size = np.median(np.abs(x.astype(np.float32)), axis=0)
    assert (size > 10 * np.median(size)).sum() == 4
    values = arrays(Case("normal", Cell("wide", 1024, 8, 64)))[0]
    assert np.abs(values.astype(np.float32)).max() < 6


def test_weights_of_a_model_are_used_as_they_are():
    rng = np.random.default_rng(0)
    gate, up, down = (
        rng.standard_normal(shape).astype(BF16) for shape in [(48, 32)] * 2 + [(8, 48)]
    )
    weights = MLPWeights(gate.T, up.T, down.T, "test")
    case = Case("smollm2", Cell("layer", 32, 48, 5), 3)
    x, *found = arrays(case, 0, weights)
    assert x.shape == (5, 32)
    assert (found[0] == gate.T).all()
    assert (found[1] == up.T).all()


def test_on_the_cpu_cells_have_few_tokens_and_each_is_checked_once():
    cells = [Cell("a", 64, 64, m) for m in (16, 512, 4096)]
    found, missing = run.cases(cells, quick=True, on_gpu=False)
    assert [case.cell.m for case in found if case.distribution == "normal"] == [16, run.CPU_TOKENS]
    assert missing == {"smollm2": "the model is not installed"}
    found, _ = run.cases(cells, quick=True, on_gpu=True)
    assert [case.cell.m for case in found if case.distribution == "normal"] == [16, 512, 4096]


# Comparisons and targets


@pytest.fixture(scope="module")
def right():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        return checked()


def test_the_numpy_backend_reaches_every_target(right):
    assert [row.case for row in right.cases] == CASES
    assert right.missed() == []
    for row in right.cases:
        assert set(row.outcomes) == {"numpy", UNFUSED}
        ours, eager = row.outcomes["numpy"].measured, row.outcomes[UNFUSED].measured
        assert ours.within_ulp > 0.999 > eager.within_ulp
        assert sum(ours.ulps) == SMALL.m * SMALL.n


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out: (out.astype(np.float32) * 1.02).astype(BF16), "off by more than 1%, at most"),
        (lambda out: np.where(np.arange(256) == 7, BF16.type(0), out), "away from zero, none may"),
        (
            lambda out: (out.astype(np.float32) * 1.009).astype(BF16),
            "within one ulp, at least 99.9%",
        ),
        (lambda out: np.full_like(out, np.nan), "100.0000% off by more than 1%"),
        (lambda out: out[:, :1] @ out, "ValueError"),
    ],
    ids=["scaled", "a column is zero", "two ulps", "NaN", "an error"],
)
def test_a_kernel_that_misses_a_target_is_told_by_name(change, words):
    found = checked(broken(change), cases=CASES[:1]).missed()
    assert any(words in text for text in found)
    assert all(text.startswith("normal, small at M = 40: broken: ") for text in found)


def test_what_others_miss_is_not_told():
    assert checked(broken(np.zeros_like, "torch-eager"), cases=CASES[:1]).missed() == []


def test_the_share_that_may_be_off_is_a_tenth_of_eagers(right):
    row = right.cases[0]
    ours, eager = row.outcomes["numpy"], row.outcomes[UNFUSED]
    for off, theirs, missed in [(5e-4, 6e-3, 0), (5e-4, 4e-3, 1), (7e-4, 0.5, 1)]:
        outcomes = {
            "numpy": replace(ours, measured=replace(ours.measured, off=off)),
            UNFUSED: replace(eager, measured=replace(eager.measured, off=theirs)),
        }
        assert len(replace(row, outcomes=outcomes).missed()) == missed


def test_the_inputs_of_our_worst_element_give_its_value(right):
    for row in right.cases:
        assert row.worst.contender == "numpy"
        x, gate, up = (part.astype(np.float64) for part in row.worst.vectors())
        assert len(x) == len(gate) == len(up) == SMALL.k
        worst = row.outcomes["numpy"].measured.worst
        assert x @ gate == pytest.approx(worst.gate, rel=1e-12)
        assert x @ up == pytest.approx(worst.up, rel=1e-12)
        expected = worst.gate / (1 + math.exp(-worst.gate)) * (x @ up)
        assert expected == pytest.approx(worst.expected, rel=1e-12)


def test_torch_eager_takes_part_on_the_cpu_and_rounds_after_each_operation(monkeypatch):
    host_torch.install(monkeypatch)
    row = checked(cases=CASES[:1]).cases[0]
    assert row.eager == "torch-eager"
    eager, unfused = row.outcomes["torch-eager"], row.outcomes[UNFUSED]
    assert not eager.ours
    assert eager.measured == unfused.measured


# JSON, plots and the command


def test_a_report_is_read_as_it_was_written(right, tmp_path):
    path = tmp_path / "check.json"
    failed = checked(broken(lambda out: out[:, :1] @ out), cases=CASES[:1])
    for made in (right, failed):
        report.save(made, path)
        assert report.load(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_several_contenders_have_in_common_is_written_once(right, tmp_path):
    path = tmp_path / "check.json"
    row = right.cases[0]
    again = row.outcomes | {"another": row.outcomes["numpy"]}
    made = replace(right, cases=(replace(row, outcomes=again),))
    report.save(made, path)
    (kept,) = json.loads(path.read_text())["cases"]
    assert [one["who"] for one in kept["outcomes"]] == [["numpy", "another"], [UNFUSED]]
    assert report.load(path) == made


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 99}', '{"format": 2, "cases": [{}]}', "[" * 10**5, "\0", "\xff"],
)
def test_what_is_no_report_is_refused_by_name(tmp_path, content):
    path = tmp_path / "check.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"check\.json is no accuracy report"):
        report.load(path)


def test_a_report_of_another_format_is_refused_with_the_command_that_makes_it_anew(tmp_path):
    path = tmp_path / "check.json"
    path.write_text('{"format": 1, "cases": []}')
    with pytest.raises(ValueError, match=r"reads format 2; .* cuswiglu check --json NEW"):
        report.load(path)


def test_the_kept_report_is_read():
    kept = report.load(Path(__file__).parents[2] / "notebooks" / "results" / "check_h200.json")
    outcomes = [one for row in kept.cases for one in row.outcomes.values()]
    assert all(one.measured.worst.error < 1 for one in outcomes if one.ours)
    assert len(tables.contenders(kept)) > 10


def test_a_report_that_is_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "check.json"
    with path.open("wb") as file:
        file.truncate(report.MAX_BYTES + 1)
    with pytest.raises(ValueError, match="larger than"):
        report.load(path)


def test_the_command_checks_and_keeps_what_it_found(small, tmp_path, capsys):
    path = tmp_path / "check.json"
    assert main(["check", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    for name in ("normal", "uniform", "outliers"):
        assert re.search(rf"^{name} +small M=40 .* pass$", out, re.MULTILINE)
    assert "missing: smollm2: the model is not installed" in out
    assert re.search(r"^missing: torch-eager: torch cannot be imported", out, re.MULTILINE)
    assert re.search(r"^targets, of 3 cases: .*: pass$", out, re.MULTILINE)
    assert len(json.loads(path.read_text())["cases"]) == 3
    assert main(["check", "--from", str(path)]) == 0
    assert capsys.readouterr().out == out


def test_the_command_fails_when_a_target_is_missed(small, monkeypatch, capsys):
    right = reference.swiglu

    def wrong(x, gate, up, out):
        right(x, gate, up, out)
        out[0] = 0

    monkeypatch.setattr(reference, "swiglu", wrong)
    monkeypatch.setattr("cuswiglu.runtime.plan._plans", Cache(4))
    assert main(["check"]) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "normal, small at M = 40: numpy: " in out


def test_the_gpu_is_refused_where_there_is_none(capsys):
    assert main(["check", "--device", "cuda"]) == 1
    assert "--device cuda needs a CUDA GPU: no NVIDIA driver" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("numpy", {"numpy", UNFUSED}),
        ("cublas", {"auto", "portable", UNFUSED}),
        ("sm90", {"auto", "portable", UNFUSED, *(k.name for k in cuswiglu.variants() if k.gated)}),
    ],
)
def test_every_backend_has_its_contenders(backend, names):
    found = contenders.find(backend, "an A100")
    assert {one.name for one in found.contenders} == names
    assert {one.name for one in found.contenders if one.name in contenders.OTHERS} == {UNFUSED}
    assert found.missing.get("variants") == (None if backend == "sm90" else "an A100")


def test_an_unknown_model_is_refused(capsys):
    assert main(["check", "--models", "9b"]) == 1
    assert "has no model 9b" in capsys.readouterr().err


def test_the_histogram_has_a_share_of_one_for_everybody(right):
    for name in DISTRIBUTIONS:
        found = plots.shares(right, name)
        assert set(found) == (set() if name == "smollm2" else {"ours", UNFUSED})
        for shares in found.values():
            assert sum(shares) == pytest.approx(1)
            assert len(shares) == len(plots.labels())
    assert plots.labels()[:4] == ["0", "1", "2", "3-4"]


def test_the_histogram_is_drawn(right, tmp_path):
    pytest.importorskip("matplotlib")
    (path,) = plots.draw(right, tmp_path / "plots")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert plots.draw(replace(right, cases=()), tmp_path) == []
