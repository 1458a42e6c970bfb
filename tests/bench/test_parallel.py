"""The suite `tensor-parallel`: run on devices that the CPU pretends to have, and how it is told."""

from __future__ import annotations

import json
import textwrap

import pytest

from benchmarks.targets import targets
from cuswiglu.bench import record as records
from cuswiglu.bench.contenders._jax_parallel import OURS, PLAIN
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.report import plots, tables
from cuswiglu.bench.suites.tensor_parallel import SUITE, scaling, speed, speedups
from cuswiglu.cli import main
from tests.helpers.bench_records import FAILED, SESSION, row
from tests.helpers.processes import printed_by_jax

TIMES = {
    "cuswiglu-jax@1": 100.0,
    "jax@1": 120.0,
    "cuswiglu-jax@4": 40.0,
    "jax@4": 44.0,
    "cuswiglu-jax@4-unsummed": 30.0,
    "jax@4-unsummed": 33.0,
}


def one(**changes):
    made = {name: Outcome(time, captured=False) for name, time in TIMES.items()}
    return row("7b", 16, made | changes)


def kept(**changes):
    return Record("tensor-parallel", 0, 9, (SESSION,), (one(**changes),))


# Figures


def test_speed_up_share_and_speed_of_a_cell():
    ours, plain = (scaling(one(), who) for who in (OURS, PLAIN))
    assert (ours.gpus, ours.one, ours.every, ours.unsummed) == (4, 100.0, 40.0, 30.0)
    assert (ours.speedup, ours.share) == (2.5, 0.25)
    assert plain.share == pytest.approx(0.25)
    assert speed(one(), gpus=1) == pytest.approx(1.2)
    assert speed(one(), gpus=4) == pytest.approx(1.1)


def test_what_failed_has_no_figure():
    broken = one(**{"cuswiglu-jax@4": FAILED})
    found = scaling(broken, OURS)
    assert (found.speedup, found.share, speed(broken, gpus=4)) == (None, None, None)
    assert scaling(broken, PLAIN).speedup == pytest.approx(120 / 44)


def test_one_gpu_has_no_speed_up():
    alone = {name: Outcome(TIMES[name]) for name in ("cuswiglu-jax@1", "jax@1")}
    record = Record("tensor-parallel", 0, 9, (SESSION,), (row("7b", 16, alone),))
    assert scaling(record.cells[0], OURS).gpus == 1
    assert speedups(record, OURS) == {}
    assert "-" in tables.line(SUITE.columns, record, record.cells[0]).split()


def test_a_line_has_times_speeds_speed_ups_and_shares():
    line = tables.line(SUITE.columns, kept(), one())
    found = line.split()
    times, ratios = ["100.0", "120.0", "40.0", "44.0"], ["1.200", "1.100", "2.50", "2.73"]
    assert found == ["7b", "16", "4", *times, *ratios, "25.0%", "25.0%"]
    assert len(tables.heading(SUITE.columns)) == len(line)


def test_a_kept_record_is_printed_and_drawn(capsys, tmp_path):
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    path = tmp_path / "parallel.json"
    records.save(kept(), path)
    assert main(["bench", "--from", str(path), "--plots", str(tmp_path / "plots")]) == 0
    text = capsys.readouterr().out
    assert "share of the sum over the GPUs" in text
    assert "not measured: 8 cells" in text
    (drawn,) = (tmp_path / "plots").iterdir()
    assert drawn.name == "tensor-parallel_scaling.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")


def targets_of(*rows):
    found = targets(Record("tensor-parallel", 0, 9, (SESSION,), rows))
    return [(one.name.split()[0], one.value, one.met) for one in found]


@pytest.mark.parametrize(("every", "met"), [(50.0, "must"), (60.0, "missed")])
def test_the_targets_are_the_speed_up_of_72b_on_two_gpus_and_the_worst_speed(every, met):
    times = {"cuswiglu-jax@1": 100.0, "cuswiglu-jax@2": every, "jax@2": 54.0}
    large = row("72b", 4096, {name: Outcome(time) for name, time in times.items()})
    assert targets_of(large, one()) == [
        ("72B", f"{100 / every:.3f} (72b at M = 4096)", met),
        ("on", f"{54 / every:.3f} (72b at M = 4096)", met),
    ]


def test_one_gpu_meets_and_misses_no_target(tmp_path):
    alone = {name: Outcome(TIMES[name]) for name in ("cuswiglu-jax@1", "jax@1")}
    assert targets_of(row("72b", 4096, alone)) == []
    assert plots.draw(Record("tensor-parallel", 0, 9), SUITE.plots, tmp_path) == []


def test_the_cells_are_small_and_large_models_at_few_and_many_tokens():
    found = {(cell.model, cell.m) for cell in SUITE.cells}
    assert found == {(model, m) for model in ("7b", "32b", "72b") for m in (16, 512, 4096)}


# Runs, each in a process of its own

SMALL = """
import json, sys
from dataclasses import asdict, replace
from cuswiglu.bench.cells import Cell
from cuswiglu.bench.contenders import _jax_parallel
from cuswiglu.bench.run import parallel
from cuswiglu.bench.suites import SUITES
_jax_parallel.ROTATED_BYTES, _jax_parallel.LAYERS_OF_FEW, parallel.TARGET_US = 0, 4, 100
"""


def run(code, devices=4):
    pytest.importorskip("jax", reason="the suite is JAX's")
    return printed_by_jax(SMALL + textwrap.dedent(code), devices=devices)


def measured(devices, n=256, before=""):
    code = f"""
        {before}
        found = SUITES["tensor-parallel"].find()
        cell = Cell("tiny", 64, {n}, 16)
        made = parallel.measure(cell, found.contenders, seed=0, rounds=7)
        print(json.dumps({{name: asdict(one) for name, one in made.outcomes.items()}}))
        """
    return json.loads(run(code, devices))


def test_both_are_timed_on_one_device_and_on_all_with_the_sum_and_without():
    found = measured(4)
    assert list(found) == [
        "cuswiglu-jax@1",
        "jax@1",
        "cuswiglu-jax@4",
        "jax@4",
        "cuswiglu-jax@4-unsummed",
        "jax@4-unsummed",
    ]
    assert all(one["microseconds"] > 0 for one in found.values())
    for name, one in found.items():
        if name.endswith("unsummed"):
            assert one["relative_error"] is None
        else:
            assert 0 < one["relative_error"] < 2**-7


def test_one_device_is_measured_alone():
    assert list(measured(1)) == ["cuswiglu-jax@1", "jax@1"]


def test_a_wrong_sum_is_not_timed():
    before = "from jax import lax; lax.psum = lambda y, axis: y  # each device keeps its part"
    found = measured(4, before=before)
    assert found["cuswiglu-jax@4"]["error"].startswith("wrong result: relative error")
    assert found["cuswiglu-jax@4"]["microseconds"] is None
    assert found["jax@1"]["microseconds"] > 0


def test_what_cannot_be_cut_in_multiples_of_8_is_told():
    found = measured(3)
    assert "N = 256 cannot be cut over 3 devices" in found["jax@3"]["error"]
    assert found["jax@1"]["error"] == ""


def test_the_command_runs_without_a_gpu(tmp_path):
    path = tmp_path / "parallel.json"
    text = run(f"""
        from cuswiglu.cli import main
        cells = Cell("7b", 64, 256, 16), Cell("32b", 64, 512, 512)
        SUITES["tensor-parallel"] = replace(SUITES["tensor-parallel"], cells=cells)
        sys.exit(main(["bench", "--suite", "tensor-parallel", "--rounds", "2", "--json", "{path}"]))
        """)
    assert "no GPU" in text
    record = records.load(path)
    assert [cell.cell.model for cell in record.cells] == ["7b", "32b"]
    assert record.sessions[0].gpu["devices"] == ["cpu"] * 4
    assert set(speedups(record, OURS)) == {cell.cell for cell in record.cells}
