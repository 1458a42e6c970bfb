"""The suite `activations`: what each contender asks for, what it is compared with, its targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cuswiglu
from benchmarks.targets import targets
from cuswiglu.bench import record as records
from cuswiglu.bench.contenders import Runner, _own, inputs
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.run import run as bench_run
from cuswiglu.bench.suites import paper
from cuswiglu.bench.suites.activations import SUITE, ours
from cuswiglu.cli import main
from cuswiglu.problem import activations
from tests.helpers import fp64 as references
from tests.helpers.bench_cells import SETS, STREAM, named, on_gpu, poisoned_inputs
from tests.helpers.bench_host import CELL, host, measured
from tests.helpers.bench_records import FAILED, SESSION, row
from tests.helpers.compiled import GATED
from tests.helpers.fake_driver import coefficients
from tests.helpers.host_arrays import BF16, FP16

assert host  # a fixture

#: Contender -> (what it asks for, with biases, dtype).
ASKED = {
    "silu": ("silu", False, BF16),
    "gelu": ("gelu", False, BF16),
    "gelu_tanh": ("gelu_tanh", False, BF16),
    "relu": ("relu", False, BF16),
    "sigmoid": ("sigmoid", False, BF16),
    "identity": ("identity", False, BF16),
    "clamped": (cuswiglu.ClampedSwiGLU(), False, BF16),
    "biased": ("silu", True, BF16),
    "float16": ("silu", False, FP16),
}
MARKED = ["gelu", "gelu_tanh", "relu", "sigmoid", "identity", "clamped", "biased"]
BY_CONTENDER = pytest.mark.parametrize("name", ASKED)


def test_cells_are_the_papers_of_7b():
    assert SUITE.cells == tuple(paper.SUITE.select(["7b"]))
    assert {(one.k, one.n) for one in SUITE.cells} == {(3584, 18944)}


# Who takes part


def contender(name):
    return named(name, ours())


@pytest.fixture
def drawn(gpu, monkeypatch):
    """Inputs of the small cell, by dtype, on the GPU that is not there."""
    with on_gpu(gpu, monkeypatch, _own):
        yield {dtype: poisoned_inputs(CELL, dtype) for dtype in (BF16, FP16)}


def test_contenders_are_ours_alone():
    found = SUITE.find()
    assert {one.name: one.dtype for one in found.contenders} == {
        name: dtype for name, (_, _, dtype) in ASKED.items()
    }
    assert found.missing == {}


@BY_CONTENDER
def test_a_contender_launches_what_it_is_named_after_on_the_arrays_of_its_set(gpu, drawn, name):
    activation, biased, dtype = ASKED[name]
    its = drawn[dtype]
    runner = contender(name).make(its)
    assert runner.captured
    for number in range(SETS):
        gpu.driver.launches.clear()
        runner.timed(number)
        (launch,) = gpu.driver.launches
        arrays = its.x, its.w_gate[number], its.w_up[number], its.hidden
        assert launch.addresses == tuple(array.data.ptr for array in arrays)
        gate, up = its.biases[number]
        assert launch.biases == ((gate.data.ptr, up.data.ptr) if biased else (0, 0))
        code = activations.find(activation).code
        assert launch.named["activation"] == code
        assert coefficients(activation).items() <= launch.named.items()
        assert ("_f16" in launch.entry) == (dtype == FP16)
        assert launch.stream == STREAM


def test_all_are_computed_by_the_kernel_that_auto_chooses_for_silu(drawn):
    chosen = {name: contender(name).make(drawn[dtype]) for name, (*_, dtype) in ASKED.items()}
    (choice,) = {runner.choice for runner in chosen.values()}
    auto = cuswiglu.explain(drawn[BF16].x, *drawn[BF16].pairs[0]).choice
    assert choice == auto.kernel.name


# What they are compared with


@BY_CONTENDER
def test_a_contender_is_compared_with_fp64_of_its_own_inputs_and_activation(host, name):
    activation, biased, dtype = ASKED[name]
    its = inputs.draw(CELL, 0, whole_mlp=False, dtype=dtype)
    biases = its.biases[0] if biased else ()
    expected = references.swiglu(its.sample(its.x), *its.pairs[0], *biases, activation=activation)
    found = its.expected.of(contender(name).computes)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


def computed(name, drawn):
    """What a contender shall compute, as tests define it, rounded."""
    activation, biased, dtype = ASKED[name]
    biases = drawn.biases[0] if biased else ()
    exact = references.swiglu(drawn.x, *drawn.pairs[0], *biases, activation=activation)
    return exact.astype(dtype)


def with_result_of(other, name):
    """A contender that has another one's result."""

    def make(drawn):
        return Runner(lambda: computed(other, drawn), lambda number: None)

    return replace(contender(name), make=make)


def test_right_results_are_timed(host):
    found = measured(*(with_result_of(name, name) for name in ASKED)).outcomes
    assert {name: (one.microseconds, one.error) for name, one in found.items()} == dict.fromkeys(
        ASKED, (7.0, "")
    )
    errors = {name: one.relative_error for name, one in found.items()}
    assert errors.pop("float16") < 2**-11
    assert all(2**-11 < error < 2**-8 for error in errors.values())


@pytest.mark.parametrize("name", MARKED)
def test_silus_result_is_wrong_for_the_others(host, name):
    found = measured(with_result_of("silu", name)).outcomes[name]
    assert found.error.startswith("wrong result")
    assert host.timed == []


def test_inputs_of_fp16_are_the_same_numbers_rounded_otherwise(host):
    brain, half = (inputs.draw(CELL, 0, whole_mlp=False, dtype=dtype) for dtype in (BF16, FP16))
    for one, other in (
        (brain.x, half.x),
        (brain.w2[1], half.w2[1]),
        (brain.biases[1], half.biases[1]),
    ):
        assert (one.dtype, brain.sets) == (BF16, half.sets)
        np.testing.assert_allclose(one.astype(float), other.astype(float), 2**-8, 2**-20)
    assert {array.dtype for array in (half.x, *half.w2, *half.biases, half.hidden)} == {FP16}
    finer = half.x.astype(np.float32)
    assert (finer.astype(BF16).astype(np.float32) != finer).mean() > 0.5


def test_fp16_is_poisoned_with_nan():
    array = np.zeros((3, 4), FP16)
    inputs.poison(array)
    assert np.isnan(array).all()


# Targets and tables


def outcomes(silu=200.0, **over):
    """Of a cell where the others take so many times silu's time; 1 unless said otherwise."""
    ratios = dict.fromkeys([*MARKED, "float16"], 1.0) | over
    found = {name: Outcome(silu * ratio, 0.0016) for name, ratio in ratios.items()}
    return found | {"silu": Outcome(silu, 0.0016, choice="dual_pingpong_128x80_2x1")}


def kept(*made):
    """A record of the first cells, with these outcomes."""
    cells = SUITE.cells[: len(made)]
    rows = [row(one.model, one.m, found) for one, found in zip(cells, made, strict=True)]
    return Record("activations", 0, 9, (SESSION,), tuple(rows))


def by_name(record):
    found = {figure.name.split()[2]: figure for figure in targets(record)}
    assert [f"time of {name} over silu's, worst cell" for name in found] == [
        figure.name for figure in targets(record)
    ]
    return found


def test_a_target_is_of_the_worst_cell_and_tells_the_mean():
    found = by_name(
        kept(outcomes(gelu=1.02), outcomes(400, gelu=0.99, relu=1.005), outcomes(800), outcomes())
    )
    assert list(found) == MARKED
    gelu, relu = found["gelu"], found["relu"]
    mean = (1.02 * 0.99) ** 0.25
    assert gelu.value == f"1.020 (7b at M = 512), mean {mean:.3f}"
    assert (gelu.must, gelu.aim, gelu.met) == ("at most 1.010", "-", "missed")
    assert relu.value == "1.005 (7b at M = 1024), mean 1.001"
    assert {found[name].met for name in MARKED[1:]} == {"must"}
    assert {(one.cells, one.of, one.partial) for one in found.values()} == {(4, 4, False)}


@pytest.mark.parametrize(("ratio", "met"), [(0.9, "must"), (1.01, "must"), (1.0101, "missed")])
def test_a_target_is_met_up_to_one_percent(ratio, met):
    assert by_name(kept(outcomes(100.0, clamped=ratio)))["clamped"].met == met


def test_fp16_has_no_target():
    assert set(by_name(kept(outcomes(float16=2.0)))) == set(MARKED)


def test_targets_on_fewer_cells_are_partial_and_without_a_contender_left_out():
    found = by_name(
        kept(outcomes() | {"gelu": FAILED}, outcomes() | {"gelu": FAILED, "relu": FAILED})
    )
    assert {name: (one.cells, one.partial) for name, one in found.items()} == {
        "gelu_tanh": (2, True),
        "relu": (1, True),
        "sigmoid": (2, True),
        "identity": (2, True),
        "clamped": (2, True),
        "biased": (2, True),
    }
    assert targets(kept()) == []
    assert targets(kept(outcomes() | {"silu": FAILED})) == []


def test_a_line_has_silus_time_and_the_others_over_it():
    found = outcomes(gelu=1.004, biased=0.998, float16=1.05) | {"relu": FAILED}
    del found["clamped"]
    record, columns = kept(found), SUITE.columns
    assert {column.heading: column.text(record, record.cells[0]) for column in columns} == {
        "model": "7b",
        "M": "512",
        "silu us": "200.0",
        "its kernel": "dual_pingpong_128x80_2x1",
        "gelu": "1.004",
        "gelu_tanh": "1.000",
        "relu": "failed",
        "sigmoid": "1.000",
        "identity": "1.000",
        "clamped": "-",
        "biased": "0.998",
        "float16": "1.050",
    }
    assert all(len(column.heading) <= column.width for column in columns)
    assert max(len(kernel.name) for kernel in GATED) <= columns[3].width


# The command


def test_a_kept_record_is_printed(capsys, tmp_path):
    pytest.importorskip("rich")
    path = tmp_path / "activations.json"
    records.save(kept(*[outcomes(gelu=1.02, float16=1.05)] * 4), path)
    assert main(["bench", "--from", str(path)]) == 0
    text = capsys.readouterr().out
    assert "time of each other call" in text
    assert "not measured" not in text
    lines = [line.split() for line in text.splitlines() if line.split()[:2] == ["7b", "4096"]]
    assert lines[0][4:] == ["1.020", *["1.000"] * 6, "1.050"]


def test_the_command_measures_some_of_the_cells(monkeypatch, capsys):
    pytest.importorskip("rich")
    asked = []

    def run(begun, wanted, find, path, **options):
        asked.append((begun.suite, [str(one) for one in wanted]))
        return kept()

    monkeypatch.setattr(bench_run, "run", run)
    assert main(["bench", "--suite", "activations", "--tokens", "512,4096"]) == 0
    assert asked == [("activations", ["7b at M = 512", "7b at M = 4096"])]
    capsys.readouterr()


def test_more_kernels_are_refused(capsys, tmp_path):
    pytest.importorskip("rich")
    assert main(["bench", "--suite", "activations", "--also", str(tmp_path)]) == 1
    words = "--also is for suites paper, quick and random, not for suite activations"
    assert words in capsys.readouterr().err
