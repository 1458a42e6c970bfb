"""The suite `jax`: a stack of layers, with NumPy in CuPy's place, and how it is told."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

from cuswiglu.bench import contenders, fp64, inputs, marks, measure, plots, tables
from cuswiglu.bench.cells import LAYERS, SUITES, layers
from cuswiglu.bench.contenders import _jax, _jax_stack
from cuswiglu.bench.record import Outcome, Record
from tests.bench.test_measure import CELL, contender, host
from tests.bench.test_records import FAILED, SESSION, row

assert host  # a fixture


@pytest.fixture
def drawn(host):
    """A stack of 24 layers."""
    return inputs.draw(CELL, 0, whole_mlp=True, layers=LAYERS)


def residual(drawn, round_to=ml_dtypes.bfloat16):
    """x + mlp(x), layer after layer, each rounded."""
    x = drawn.x.astype(np.float64)
    for w2, down in zip(drawn.w2, drawn.w_down, strict=True):
        x = x + fp64.expected(np, x, w2, down.T).mlp
        x = x.astype(round_to).astype(np.float64)
    return x.astype(ml_dtypes.bfloat16)


def test_a_stack_has_a_set_of_weights_for_each_layer(drawn):
    assert (drawn.sets, drawn.stacked) == (24, True)
    assert layers("jax") == 24
    assert layers("mlp") == 0


def test_a_stack_stays_of_one_size(drawn):
    """Neither fades nor grows, so that every layer computes with numbers as in a model."""
    assert 1 < np.sqrt(np.mean(residual(drawn).astype(np.float64) ** 2)) < 3


def test_fp64_goes_through_all_layers(drawn):
    exact = residual(drawn, np.float64)
    error, _ = fp64.compare(np, drawn.sample(exact), drawn.expected.stack)
    assert error < 2**-8  # the last rounding


def test_a_stack_is_compared_with_fp64(host):
    def wrong(drawn):
        """The last layer is left out."""
        return residual(inputs.Inputs(drawn.cell, drawn.x, drawn.w2[:-1], drawn.w_down[:-1]))

    both = [
        contender(name, output, captured=False) for name, output in (("a", residual), ("b", wrong))
    ]
    both = [contenders.Contender(one.name, one.make, "stack") for one in both]
    found = measure.measure(CELL, both, seed=0, rounds=3, whole_mlp=True, layers=LAYERS).outcomes
    assert found["a"].error == ""
    assert found["a"].microseconds == 7.0
    assert found["b"].error.startswith("wrong result")


def test_contenders_are_ours_plain_jax_and_a_captured_graph(monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setattr(_jax, "why_missing", lambda: "")
    found = contenders.find("jax")
    assert [one.name for one in found.contenders] == ["cuswiglu-jax", "captured", "jax"]
    assert {one.computes for one in found.contenders} == {"stack"}
    assert found.missing == {}


def test_without_jax_the_graph_is_timed_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    found = contenders.find("jax")
    assert [one.name for one in found.contenders] == ["captured"]
    assert set(found.missing) == {"cuswiglu-jax", "jax"}


@pytest.mark.parametrize("name", ["cuswiglu-jax", "jax"])
def test_the_jitted_stack_is_fp64s(drawn, monkeypatch, name):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(_jax, "why_missing", lambda: "")
    monkeypatch.setattr(jax.numpy, "from_dlpack", jax.numpy.asarray)

    class OnTheHost:
        from_dlpack = staticmethod(np.asarray)

    monkeypatch.setattr(_jax_stack, "cupy_module", lambda: OnTheHost)
    (one,) = (one for one in _jax_stack.stacks().contenders if one.name == name)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        found = one.make(drawn).output()
    error, _ = fp64.compare(np, drawn.sample(found), drawn.expected.stack)
    assert error < fp64.MAX_RELATIVE_ERROR


@pytest.mark.parametrize("replays", [1, 7, 100])
def test_what_the_host_takes_around_calls_is_not_timed(monkeypatch, replays):
    """A clock that calls move by 300 us, and the wait for the last by 500 us more."""
    jax = pytest.importorskip("jax")
    now = [0.0]

    def passes(microseconds):
        now[0] += microseconds * 1e-6

    monkeypatch.setattr(_jax.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(jax, "block_until_ready", lambda result: passes(500))
    assert _jax.elapsed(lambda: passes(300), replays) == pytest.approx(300 * replays)


def test_a_line_has_times_of_the_whole_stack():
    times = {"cuswiglu-jax": Outcome(25.0), "jax": Outcome(40.0), "captured": Outcome(20.0)}
    assert tables.line("jax", row("0.5b", 16, times)).split() == [
        *("0.5b", "16", "600", "960", "480", "1.60", "1.25")
    ]
    times["jax"] = FAILED
    assert "failed" in tables.line("jax", row("0.5b", 16, times))


def kept(few, many):
    """A record of both cells, of (ours, plain, captured)."""
    names = "cuswiglu-jax", "jax", "captured"
    rows = (
        row("0.5b", m, {name: Outcome(us) for name, us in zip(names, times, strict=True)})
        for m, times in ((16, few), (512, many))
    )
    return Record("jax", 0, 9, (SESSION,), tuple(rows))


@pytest.mark.parametrize(
    ("few", "many", "met"),
    [
        ((10.0, 15.0, 10.0), (20.0, 28.0, 20.0), ["must", "must", "must"]),
        ((10.0, 14.9, 10.0), (20.0, 27.9, 19.0), ["missed", "missed", "missed"]),
    ],
)
def test_marks_are_of_each_cell_and_of_the_captured_stack(few, many, met):
    found = marks.marks(kept(few, many))
    assert [mark.met for mark in found] == met
    assert [mark.must for mark in found] == ["1.50", "1.40", "at most 1.030"]
    assert not any(mark.partial for mark in found)


def test_without_ours_there_are_no_marks_and_never_a_plot(tmp_path):
    pytest.importorskip("matplotlib")
    record = Record("jax", 0, 9, (SESSION,), (row("0.5b", 16, {"jax": Outcome(40.0)}),))
    assert marks.marks(record) == []
    assert plots.draw(record, tmp_path) == []
    assert [cell.m for cell in SUITES["jax"]] == [16, 512]
