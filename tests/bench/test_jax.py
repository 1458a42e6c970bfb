"""The suite `jax`: a stack of layers, with NumPy in CuPy's place, and how it is told."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

from benchmarks.targets import targets
from cuswiglu.bench import contenders
from cuswiglu.bench.contenders import _jax, expected, inputs
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.report import tables
from cuswiglu.bench.suites import jax as suite
from cuswiglu.bench.suites.jax import LAYERS, SUITE
from cuswiglu.testing import numerics
from tests.helpers.bench_host import CELL, contender, host
from tests.helpers.bench_records import FAILED, SESSION, row

assert host  # a fixture


@pytest.fixture
def drawn(host):
    """A stack of 24 layers."""
    return inputs.draw(CELL, 0, whole_mlp=True, layers=LAYERS)


def residual(drawn, round_to=ml_dtypes.bfloat16):
    """x + mlp(x), layer after layer, each rounded."""
    x = drawn.x.astype(np.float64)
    for w2, down in zip(drawn.w2, drawn.w_down, strict=True):
        x = expected.stack(np, x, [(w2, down.T)])
        x = x.astype(round_to).astype(np.float64)
    return x.astype(ml_dtypes.bfloat16)


def test_a_stack_has_a_set_of_weights_for_each_layer(drawn):
    assert (drawn.sets, drawn.stacked) == (24, True)


def test_a_stack_stays_of_one_size(drawn):
    """Neither fades nor grows, so that every layer computes with numbers as in a model."""
    assert 1 < np.sqrt(np.mean(residual(drawn).astype(np.float64) ** 2)) < 3


def test_fp64_goes_through_all_layers(drawn):
    exact = residual(drawn, np.float64)
    error = numerics.compare(np, drawn.sample(exact), drawn.expected.stack).relative_error
    assert error < 2**-8  # the last rounding


def test_a_stack_is_compared_with_fp64(host):
    def wrong(drawn):
        """The last layer is left out."""
        return residual(inputs.Inputs(drawn.cell, drawn.x, drawn.w2[:-1], drawn.w_down[:-1]))

    both = [
        contender(name, output, captured=False) for name, output in (("a", residual), ("b", wrong))
    ]
    both = [contenders.Contender(one.name, one.make, "stack") for one in both]
    found = SUITE.method.measure(CELL, both, seed=0, rounds=3).outcomes
    assert found["a"].error == ""
    assert found["a"].microseconds == 7.0
    assert found["b"].error.startswith("wrong result")


def test_contenders_are_ours_plain_jax_and_a_captured_graph(monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setattr(_jax, "why_missing", lambda: "")
    found = SUITE.find()
    assert [one.name for one in found.contenders] == ["cuswiglu-jax", "captured", "jax"]
    assert {one.computes for one in found.contenders} == {"stack"}
    assert found.missing == {}


def test_without_jax_the_graph_is_timed_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    found = SUITE.find()
    assert [one.name for one in found.contenders] == ["captured"]
    assert set(found.missing) == {"cuswiglu-jax", "jax"}


@pytest.mark.parametrize("name", ["cuswiglu-jax", "jax"])
def test_the_jitted_stack_is_fp64s(drawn, monkeypatch, name):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(_jax, "why_missing", lambda: "")
    monkeypatch.setattr(jax.numpy, "from_dlpack", jax.numpy.asarray)

    class OnTheHost:
        from_dlpack = staticmethod(np.asarray)

    monkeypatch.setattr(suite, "cupy_module", lambda: OnTheHost)
    (one,) = (one for one in suite.stacks().contenders if one.name == name)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        found = one.make(drawn).output()
    error = numerics.compare(np, drawn.sample(found), drawn.expected.stack).relative_error
    assert error < numerics.MAX_UNFUSED_ERROR


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


def line(times):
    one = row("0.5b", 16, times)
    return tables.line(SUITE.columns, Record("jax", 0, 9, (SESSION,), (one,)), one)


def test_a_line_has_times_of_the_whole_stack():
    times = {"cuswiglu-jax": Outcome(25.0), "jax": Outcome(40.0), "captured": Outcome(20.0)}
    assert line(times).split() == [*("0.5b", "16", "600", "960", "480", "1.60", "1.25")]
    times["jax"] = FAILED
    assert "failed" in line(times)


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
def test_targets_are_of_each_cell_and_of_the_captured_stack(few, many, met):
    found = targets(kept(few, many))
    assert [target.met for target in found] == met
    assert [target.must for target in found] == ["1.500", "1.400", "at most 1.030"]
    assert not any(target.partial for target in found)


def test_without_ours_there_are_no_targets():
    record = Record("jax", 0, 9, (SESSION,), (row("0.5b", 16, {"jax": Outcome(40.0)}),))
    assert targets(record) == []
    assert [cell.m for cell in SUITE.cells] == [16, 512]
