"""The suite `lengths`: calls behind a kernel that writes x, what they are told by, targets."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.targets import targets
from cuswiglu.bench import record as records
from cuswiglu.bench.contenders import Contender, Runner, _behind, _torch
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.report import tables
from cuswiglu.bench.suites.lengths import SUITE, behind_speed
from cuswiglu.cli import main
from tests.helpers.bench_host import contender, host, measured, right
from tests.helpers.bench_records import FAILED, SESSION, row

assert host  # a fixture

NAMES = ["auto", "bare", "auto-behind", "bare-behind", "writer", "mlp", "fused"]


def test_cells_are_three_models_at_lengths_that_no_tile_divides():
    assert len(SUITE.cells) == 42
    assert {one.model for one in SUITE.cells} == {"0.5b", "3b", "7b"}
    assert all(129 <= one.m <= 1000 and one.m % 128 for one in SUITE.cells)


def test_contenders_are_ours_cublas_and_torch(monkeypatch):
    monkeypatch.setattr(_torch, "why_missing", lambda: "")
    found = SUITE.find()
    assert [one.name for one in found.contenders] == [*NAMES, "torch-eager", "torch-compile"]


def test_each_is_compared_with_what_it_computes():
    computes = {one.name: one.computes for one in SUITE.find().contenders}
    assert [computes[name] for name in NAMES] == [
        *("swiglu", "product", "swiglu", "product", "x", "mlp", "mlp")
    ]


# Behind a kernel that writes x


@pytest.fixture
def written(monkeypatch):
    """A writer that works on the host, and the order of what is launched."""
    order = []

    def write(source, x):
        order.append("write")
        x[...] = source

    monkeypatch.setattr(_behind, "_write", lambda: write)
    return order


def computing(order, ahead=lambda drawn: None):
    """A contender that computes SwiGLU of what x holds when it is called."""

    def make(drawn):
        read = ahead(drawn)

        def call(number):
            order.append(number)
            drawn.hidden[...] = right(drawn) if read is None else read

        return Runner(lambda: drawn.hidden, call, choice="dual_x")

    return Contender("auto", make)


def test_a_call_is_of_what_the_writer_has_written(host, written):
    behind = _behind.behind(computing(written), "hidden")
    found = measured(behind).outcomes["auto-behind"]
    assert (found.error, found.microseconds, found.choice) == ("", 7.0, "dual_x")


def test_every_call_is_behind_a_writer_of_its_own(host, written):
    timed = []

    def make(drawn):
        runner = _behind.behind(computing(written), "hidden").make(drawn)
        timed.append(runner.timed)
        return runner

    measured(Contender("kept", make))
    written.clear()
    for number in (0, 1):
        timed[0](number)
    assert written == ["write", 0, "write", 1]


def test_a_call_that_does_not_wait_for_the_writer_is_wrong(host, written):
    behind = _behind.behind(computing(written, ahead=right), "hidden")
    assert measured(behind).outcomes["auto-behind"].error.startswith("wrong result")


def test_the_inputs_of_all_others_are_left_alone(host, written):
    """Whatever became of x, contenders after it compute with the one that was drawn."""
    behind = _behind.behind(computing(written, ahead=right), "hidden")
    found = measured(behind, contender("mine", right)).outcomes
    assert found["mine"].error == ""


def test_the_writer_is_timed_alone(host, written):
    found = measured(_behind.writer()).outcomes["writer"]
    assert (found.relative_error, found.microseconds) == (0.0, 7.0)


def test_a_writer_that_leaves_something_out_is_wrong(host, monkeypatch):
    monkeypatch.setattr(_behind, "_write", lambda: lambda source, x: None)
    assert measured(_behind.writer()).outcomes["writer"].error.startswith("wrong result")


@pytest.mark.parametrize("shape", [(1, 8), (129, 896), (1000, 3584)])
def test_the_writer_covers_all_bytes(monkeypatch, shape):
    launched = []

    def kernel(source, name):
        assert f"{name}(" in source
        return lambda *arguments: launched.append(arguments)

    monkeypatch.setattr(_behind, "cupy_module", lambda: SimpleNamespace(RawKernel=kernel))
    _behind._write.cache_clear()
    source, x = (np.empty(shape, np.uint16) for _ in range(2))
    _behind._write()(source, x)
    _behind._write.cache_clear()
    ((blocks,), (threads,), arguments) = launched[0]
    assert arguments[2] * 16 == source.nbytes
    assert blocks * threads >= arguments[2]


# What is told


def outcomes(**times):
    """Of a cell: calls of ours 50 us back to back, 55 behind a writer of 5; an MLP of 90."""
    found = {"auto": 50.0, "bare": 52.0, "auto-behind": 55.0, "bare-behind": 55.0, "writer": 5.0}
    found |= {"mlp": 90.0, "fused": 108.0, "torch-eager": 130.0, "torch-compile": 110.0}
    return {name: Outcome(time) for name, time in {**found, **times}.items()}


def kept(made, cells=SUITE.cells):
    rows = [row(one.model, one.m, made) for one in cells]
    return Record("lengths", 0, 9, (SESSION,), tuple(rows))


def test_the_writers_own_time_is_subtracted():
    times = {"auto-behind": 55.0, "bare-behind": 45.0, "writer": 5.0}
    assert behind_speed(row("3b", 129, outcomes(**times))) == pytest.approx(40 / 50)


@pytest.mark.parametrize("name", ["auto-behind", "bare-behind", "writer"])
def test_without_one_of_the_three_there_is_no_speed_behind(name):
    assert behind_speed(row("3b", 129, outcomes() | {name: FAILED})) is None


def test_a_line_has_speeds_of_both_and_of_the_whole_mlp():
    made = outcomes()
    made["auto"] = replace(made["auto"], choice="dual_x")
    record = kept(made, SUITE.cells[:1])
    assert tables.line(SUITE.columns, record, record.cells[0]).split() == [
        *("0.5b", "129", "50.0", "dual_x", "1.040", "55.0", "5.0", "1.000", "90.0", "1.200")
    ]


def test_targets_are_of_all_cells():
    assert [
        (one.value.split()[0], one.must, one.aim, one.met) for one in targets(kept(outcomes()))
    ] == [
        ("1.040", "1.010", "1.080", "must"),
        ("1.040", "0.900", "0.970", "aim"),
        ("1.000", "0.970", "1.050", "must"),
        ("1.000", "0.860", "0.950", "aim"),
        ("1.200", "1.100", "1.200", "aim"),
        ("1.200", "0.970", "1.000", "aim"),
    ]
    assert {(one.cells, one.of) for one in targets(kept(outcomes()))} == {(42, 42)}


def test_without_a_writer_there_is_no_target_behind_it():
    found = targets(kept(outcomes() | {"writer": FAILED}))
    assert [one.name for one in found if "behind" in one.name] == []
    assert len(found) == 4


def test_a_kept_record_is_summed_up(capsys, tmp_path):
    pytest.importorskip("rich")
    path = tmp_path / "lengths.json"
    records.save(kept(outcomes()), path)
    assert main(["bench", "--from", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [*["bare,", "both", "behind", "a", "writer"], "1.000"] in [line[:6] for line in lines]
    assert ["fused", "1.200"] in [line[:2] for line in lines]
