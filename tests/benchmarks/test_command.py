"""`python -m benchmarks`: kept records beside targets and claims."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks import targets
from benchmarks.__main__ import main
from cuswiglu.bench import record as records
from cuswiglu.bench.suites import SUITES
from tests.helpers.bench_records import full, outcomes, record, row, variants

pytest.importorskip("rich")

TIMES = {"bare": 112.0, "quack": 106.0, "torch_eager": 150.0, "torch_compile": 140.0, "jax": 160.0}


@pytest.fixture
def printed(tmp_path, capsys):
    """What is printed of a record."""

    def run(made):
        path = tmp_path / f"{made.suite}.json"
        records.save(made, path)
        assert main(["--from", str(path)]) == 0
        return capsys.readouterr().out

    return run


def test_a_record_of_the_papers_suite_is_printed_beside_claims_and_targets(printed):
    made = outcomes(100.0, **TIMES) | variants(sync=99.0, interleave=98.0, dual=97.5)
    text = printed(full("paper", made))
    for words in ("up to 2.47x", "1.50x to 1.50x", "cell by cell", "28/28", "pass", "FAIL"):
        assert words in text, words


def test_the_whole_mlp_has_the_share_of_swiglu(printed):
    made = outcomes(100.0, torch_eager=130.0, torch_compile=118.0, fused=110.0, torch_linears=117.0)
    text = printed(full("mlp", made))
    assert "10.0% to 10.0%, mean 10.0%" in text
    assert "1.100" in text


def test_targets_on_some_of_the_cells_hold_so_far(printed):
    assert "so far" in printed(record(row("0.5b", 512, outcomes(bare=112.0))))


def test_other_suites_have_targets_alone(printed):
    text = printed(full("activations", outcomes(silu=100.0, gelu=102.0)))
    assert "time of gelu over silu's" in text
    assert "FAIL" in text
    assert "the paper's claims" not in text


def test_every_suite_has_its_targets():
    for suite in SUITES:
        assert targets.targets(record(suite=suite)) == []
        assert find_spec(f"benchmarks.targets.{suite.replace('-', '_')}")


def test_a_suite_without_targets_has_none():
    assert targets.targets(record(suite="base")) == []
    assert targets.targets(record(suite="breakfast")) == []


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), ("{}", "no benchmark")])
def test_what_cannot_be_read_is_told(tmp_path, capsys, content, words):
    path = tmp_path / "paper.json"
    if content is not None:
        path.write_text(content)
    assert main(["--from", str(path)]) == 1
    assert words in capsys.readouterr().err
