"""The suite `glu`: what runs in JAX, with NumPy in CuPy's place, floors and targets."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.targets import targets
from cuswiglu.bench import record as records
from cuswiglu.bench.contenders import _jax, _tokamax, _torch, inputs
from cuswiglu.bench.record import CellRecord, Outcome, Record
from cuswiglu.bench.report import tables
from cuswiglu.bench.suites import glu
from cuswiglu.bench.suites.glu import SUITE
from cuswiglu.cli import main
from cuswiglu.testing import numerics, timing
from tests.helpers.bench_cells import named
from tests.helpers.bench_host import CELL, host
from tests.helpers.bench_records import FAILED, SESSION

assert host  # a fixture

BY_ROWS = {(one.m, one.model): one for one in SUITE.cells}
WIDE, NARROW = BY_ROWS[1_048_576, "128x512"], BY_ROWS[1_048_576, "64x128"]


def test_cells_are_nine_shapes_named_by_k_and_n():
    assert len(SUITE.cells) == 9
    assert all(one.model == f"{one.k}x{one.n}" for one in SUITE.cells)


def test_a_cell_is_selected_by_its_shape_and_rows():
    assert SUITE.select(["128x512"], [1_048_576]) == [WIDE]


# Sets of weights


@pytest.mark.parametrize(
    ("rows", "model", "least"),
    [
        (1_024, "768x1536", 2 * 2 * 768 * 1536),  # the weights
        (5_120, "384x1536", 2 * 5120 * (384 + 1536)),  # x and the result
    ],
)
def test_a_set_counts_by_the_larger_of_weights_and_rows(monkeypatch, rows, model, least):
    monkeypatch.setattr(timing, "buffer_sets", lambda set_bytes: set_bytes)
    one = BY_ROWS[rows, model]
    assert glu.sets(one) == max(one.gate_up_bytes, least) >= least


def test_as_many_sets_are_drawn(host, monkeypatch):
    monkeypatch.setattr(glu.timing, "buffer_sets", lambda set_bytes: 3)
    assert inputs.draw(CELL, 0, whole_mlp=False, sets=glu.sets).sets == 3


# Who takes part


@pytest.fixture
def in_jax(host, monkeypatch):
    """JAX on the CPU, as if it saw a GPU, on arrays of NumPy."""
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(_jax, "why_missing", lambda: "")
    monkeypatch.setattr(jax.numpy, "from_dlpack", jax.numpy.asarray)
    on_host = SimpleNamespace(from_dlpack=np.asarray)
    monkeypatch.setattr(_jax, "cupy_module", lambda: on_host)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield jax


@pytest.fixture
def tokamax(monkeypatch):
    """A tokamax that computes what its documentation says."""

    def gated_linear_unit(x, weights, *, activation):
        assert weights.ndim == 3
        return activation(x @ weights[:, 0]) * (x @ weights[:, 1])

    monkeypatch.setitem(
        sys.modules, "tokamax", SimpleNamespace(gated_linear_unit=gated_linear_unit)
    )


def test_contenders_are_jaxs_tokamax_ours_and_torch(in_jax, tokamax, monkeypatch):
    monkeypatch.setattr(_torch, "why_missing", lambda: "")
    found = SUITE.find()
    assert [one.name for one in found.contenders] == [
        *("cuswiglu-jax", "jax", "auto", "tokamax", "torch-eager", "torch-compile")
    ]
    assert {one.computes for one in found.contenders} == {"swiglu"}
    assert found.missing == {}


def test_what_is_not_installed_is_listed_as_missing(monkeypatch):
    for name in ("jax", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    found = SUITE.find()
    assert [one.name for one in found.contenders] == ["auto"]
    assert set(found.missing) == {
        *("cuswiglu-jax", "jax", "tokamax", "torch-eager", "torch-compile")
    }


def test_without_tokamax_jax_is_there(in_jax, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokamax", None)
    found = SUITE.find()
    assert found.missing["tokamax"].startswith("tokamax cannot be imported")
    assert named("jax", found)


@pytest.mark.parametrize("name", ["cuswiglu-jax", "jax", "tokamax"])
def test_the_result_in_jax_is_fp64s(in_jax, tokamax, name):
    drawn = inputs.draw(CELL, 0, whole_mlp=False)
    runner = named(name, SUITE.find()).make(drawn)
    error = numerics.compare(np, drawn.sample(runner.output()), drawn.expected.swiglu)
    assert error.relative_error < numerics.MAX_UNFUSED_ERROR
    assert not runner.captured


def test_all_sets_are_one_program_in_which_each_call_waits_for_the_one_before(in_jax, monkeypatch):
    timed = []
    monkeypatch.setattr(_jax, "JaxTimed", timed.append)
    drawn = inputs.draw(CELL, 0, whole_mlp=False, sets=lambda cell: 3)
    sets = [(gate.T, up.T) for gate, up in _jax.weights(drawn)]
    _jax.jitted(drawn, _jax.plain_swiglu, sets)
    found = timed[0]()
    for result, (gate, up) in zip(found, drawn.pairs, strict=True):
        expected = numerics.swiglu_reference(np, drawn.x, gate, up)
        error = numerics.compare(np, np.asarray(result), expected).relative_error
        assert error < numerics.MAX_UNFUSED_ERROR
    assert str(in_jax.make_jaxpr(timed[0])()).count("optimization_barrier") == 3


# Floors, lines and targets


def test_a_floor_is_a_copy_of_x_and_the_result():
    rows, k, n = 1_048_576, 64, 128
    assert glu.floor_us(NARROW) == pytest.approx(2 * rows * (k + n) / 4.3e6)


def test_a_floor_is_the_products_where_they_take_longer():
    rows, k, n = 1_048_576, 128, 512
    assert glu.floor_us(WIDE) == pytest.approx(4 * rows * k * n / 750e6)


def test_a_contender_is_set_beside_the_floor():
    assert glu.over_floor(kept({WIDE: {"auto": 1.25}}).cells[0], "auto") == pytest.approx(1.25)


def kept(cells):
    """A record of cells -> contender -> time over the floor."""
    rows = []
    for one, ratios in cells.items():
        made = {name: Outcome(glu.floor_us(one) * ratio) for name, ratio in ratios.items()}
        rows.append(CellRecord(one, 0, 2, 1.0, {}, made))
    return Record("glu", 0, 9, (SESSION,), tuple(rows))


def test_a_line_has_speeds_in_jax_and_in_cupy():
    ratios = {"cuswiglu-jax": 1.3, "jax": 2.6, "tokamax": 1.95, "auto": 1.25, "torch-eager": 2.5}
    record = kept({WIDE: ratios})
    failed = replace(record.cells[0], outcomes=record.cells[0].outcomes | {"torch-compile": FAILED})
    line = tables.line(SUITE.columns, record, failed).split()
    assert line[:2] == ["128x512", "1048576"]
    assert line[3:6] == ["1.30", "2.000", "1.500"]
    assert line[7:] == ["1.25", "2.000", "failed"]


def test_targets_of_a_full_run():
    ratios = {"cuswiglu-jax": 1.3, "tokamax": 2.21}
    found = targets(kept(dict.fromkeys(SUITE.cells, ratios)))
    assert [(one.value.split()[0], one.must, one.aim, one.met, one.of) for one in found] == [
        ("1.700", "1.600", "1.800", "must", 9),
        ("1.700", "1.200", "1.300", "aim", 9),
        ("1.30", "at most 1.45", "at most 1.20", "must", 1),
        ("1.30", "at most 1.35", "at most 1.15", "must", 1),
    ]


def test_floors_are_judged_of_two_shapes_alone():
    others = (one for one in SUITE.cells if one not in (WIDE, NARROW))
    assert targets(kept({one: {"cuswiglu-jax": 9.0} for one in others})) == []


def test_the_version_of_tokamax_is_recorded():
    from cuswiglu.bench.run import machine

    assert _tokamax.NAME in machine.PACKAGES


def test_a_kept_record_is_summed_up_in_jax_and_in_cupy(capsys, tmp_path):
    pytest.importorskip("rich")
    ratios = {"cuswiglu-jax": 1.0, "tokamax": 1.7, "auto": 1.0, "torch-eager": 2.5}
    path = tmp_path / "glu.json"
    records.save(kept(dict.fromkeys(SUITE.cells, ratios)), path)
    assert main(["bench", "--from", str(path)]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert (lines["tokamax"][1], lines["torch-eager"][1]) == ("1.700", "2.500")
