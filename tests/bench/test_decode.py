"""The suite `decode`: cells, who takes part, shares of the copy of the same run, how it is told."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from benchmarks.targets import targets
from cuswiglu.bench import record as records
from cuswiglu.bench.cells import MODELS, cell
from cuswiglu.bench.contenders import _own, _torch, inputs
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.report import plots
from cuswiglu.bench.run import copy_rate, machine
from cuswiglu.bench.run import run as bench_run
from cuswiglu.bench.suites import decode
from cuswiglu.bench.suites.decode import FEW_TOKENS, SUITE
from cuswiglu.cli import main
from cuswiglu.selection import select
from cuswiglu.testing import timing
from tests.helpers.bench_cells import SETS, STREAM, named, on_gpu, poisoned_inputs
from tests.helpers.bench_host import CELL, host
from tests.helpers.bench_machine import Machine
from tests.helpers.bench_records import FAILED, SESSION, row

assert host  # a fixture

NAMES = ["gate-up", "bare", "mlp", "mlp-batch", "fused"]
COPY = 4.0  # TB/s
MEASURED = replace(SESSION, copy_tbs=COPY)


# Cells


def test_cells_are_seven_models_at_up_to_256_tokens():
    assert len(SUITE.cells) == 63
    assert {one.model for one in SUITE.cells} == set(MODELS)
    assert sorted({one.m for one in SUITE.cells}) == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_gate_and_up_alone_outrun_the_cache(host, monkeypatch):
    """With the down projection's bytes counted too, `gate-up` would find weights in the L2."""
    asked = []
    monkeypatch.setattr(timing, "buffer_sets", lambda set_bytes: asked.append(set_bytes) or 2)
    inputs.draw(CELL, 0, whole_mlp=True)
    assert asked == [2 * CELL.k * CELL.n * 2]


# Who takes part


@pytest.fixture
def drawn(gpu, monkeypatch):
    """Inputs of the small cell on the GPU that is not there."""
    with on_gpu(gpu, monkeypatch, _own):
        yield poisoned_inputs()


def made(name, drawn):
    return named(name, decode.ours()).make(drawn)


def ahead(launch):
    """Whether a launch loads weights ahead: an entry's last argument."""
    return launch.named["weights_ahead"] == 1


def test_contenders_are_ours_cublas_and_torch(monkeypatch):
    monkeypatch.setattr(_torch, "why_missing", lambda: "")
    found = SUITE.find()
    assert [one.name for one in found.contenders] == [*NAMES, "torch-eager", "torch-compile"]
    assert [one.computes for one in found.contenders] == ["swiglu", "product"] + ["mlp"] * 5
    assert found.missing == {}


def test_torch_is_listed_as_missing_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = SUITE.find()
    assert [one.name for one in found.contenders] == NAMES
    assert set(found.missing) == {"torch-eager", "torch-compile"}


def test_gate_and_up_load_the_weights_of_their_set_ahead(gpu, drawn):
    runner = made("gate-up", drawn)
    assert runner.captured
    for number in range(SETS):
        gpu.driver.launches.clear()
        runner.timed(number)
        (launch,) = gpu.driver.launches
        arrays = drawn.x, drawn.w_gate[number], drawn.w_up[number]
        assert [found.address for found in launch.maps[:3]] == [a.data.ptr for a in arrays]
        assert (launch.stream, ahead(launch)) == (STREAM, True)


def test_gate_and_up_tell_the_kernel_that_auto_chooses(drawn, monkeypatch):
    asked, chosen = [], select.select

    def ask(problem, device, *rest):
        asked.append(chosen(problem, device, *rest))
        return asked[-1]

    monkeypatch.setattr(select, "select", ask)
    runner = made("gate-up", drawn)
    assert runner.choice == asked[0].kernel.name
    assert asked[0].backend == "sm90"


def test_gate_and_up_take_the_portable_path_where_auto_does(gpu, drawn):
    gpu.driver.capability = (9, 9)
    runner = made("gate-up", drawn)
    runner.timed(1)
    assert gpu.driver.launches == []
    ((function, operands, _),) = gpu.portable
    assert (function, runner.choice) == ("swiglu", "cublas")
    assert operands[1].data.ptr == drawn.w_gate[1].data.ptr


@pytest.mark.usefixtures("any_evenness")
def test_the_mlp_is_checked_and_timed_from_its_second_call_on(gpu, drawn):
    runner = made("mlp", drawn)
    warmed = list(gpu.driver.launches)
    assert [ahead(launch) for launch in warmed] == [False, True] * SETS
    for number in range(SETS):
        gpu.driver.launches.clear()
        runner.timed(number)
        first, second = gpu.driver.launches
        assert (ahead(first), ahead(second)) == (True, True)
        assert first.maps[1].address == drawn.w_gate[number].data.ptr
        assert second.maps[1].address == drawn.w_down[number].data.ptr
        assert second.addresses[3] == drawn.result.data.ptr


def test_batch_invariance_is_asked_for(drawn, monkeypatch):
    layers = []

    class Layer:
        def __init__(self, *weights, deterministic):
            self.weights, self.deterministic, self.calls = weights, deterministic, 0
            layers.append(self)

        def __call__(self, x, *, out):
            assert (x is drawn.x, out is drawn.result) == (True, True)
            self.calls += 1

    monkeypatch.setattr(decode, "GatedMLP", Layer)
    for name in ("mlp", "mlp-batch"):
        made(name, drawn).timed(1)
    assert [layer.deterministic for layer in layers] == [None] * SETS + ["batch"] * SETS
    assert [layer.calls for layer in layers] == [1, 2] * 2


# The copy of the same run


def test_a_session_of_the_suite_measures_a_copy_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(copy_rate, "measured", lambda: asked.append(1) or COPY)
    monkeypatch.setattr(machine, "session", lambda gpu: SESSION)
    path = tmp_path / "decode.json"

    def resumed(cells):
        fake = Machine()
        method = replace(fake.method, session=SUITE.method.session)
        begun = bench_run.begin("decode", 0, 9, path, resume=True)
        return bench_run.run(begun, SUITE.cells[:cells], fake.find, path, method=method)

    record = resumed(2)
    assert ([one.copy_tbs for one in record.sessions], len(asked)) == ([COPY], 1)
    record = resumed(4)
    assert [one.copy_tbs for one in record.sessions] == [COPY, COPY]
    assert records.load(path) == record


def test_bandwidth_is_of_the_weights_over_the_copy_of_the_cells_own_session():
    one = cell("7b", 8)
    seconds = 4 * one.n * one.k / 3.8e12
    measured = row("7b", 8, {"gate-up": Outcome(seconds * 1e6)})
    assert decode.tbs(measured) == pytest.approx(3.8)
    once = Record("decode", 0, 9, (MEASURED,))
    assert decode.share(once, measured) == pytest.approx(3.8 / COPY)
    twice = replace(once, sessions=(MEASURED, replace(MEASURED, copy_tbs=2 * COPY)))
    later = replace(measured, session=1)
    assert decode.share(twice, later) == pytest.approx(3.8 / (2 * COPY))
    assert decode.share(replace(once, sessions=(SESSION,)), measured) is None
    assert decode.share(once, row("7b", 8, {"gate-up": FAILED})) is None


# Targets and tables


def outcomes(one, share=0.95, bare=1.1, whole=1.2, batch=1.05):
    """Of a cell whose `gate-up` has that share of the copy, and these speeds against others."""
    gate_up = one.gate_up_bytes / (share * COPY) / 1e6
    times = {"gate-up": gate_up, "bare": bare * gate_up, "mlp": 100.0, "mlp-batch": 100.0 * batch}
    times |= {"fused": 100.0 * whole, "torch-compile": 200.0 * whole, "torch-eager": 300.0 * whole}
    found = {name: Outcome(time, 0.0016) for name, time in times.items()}
    found["gate-up"] = replace(found["gate-up"], choice="decode_16")
    return found


def kept(cells=SUITE.cells, **figures_of):
    """A record of these cells; `figures_of` are functions of a cell, as `outcomes` takes them."""
    rows = []
    for one in cells:
        values = {name: function(one) for name, function in figures_of.items()}
        rows.append(row(one.model, one.m, outcomes(one, **values)))
    return Record("decode", 0, 9, (MEASURED,), tuple(rows))


def by_name(record):
    return {figure.name: figure for figure in targets(record)}


BARE = "gate and up against cuBLAS's bare GEMM, M"
SHARE = "bandwidth of gate and up over a copy's, M <= 64"
WHOLE = "whole MLP against the best of torch-eager, torch-compile, fused, M <= 64"


def test_targets_of_a_full_run():
    found = by_name(kept())
    assert {
        name: (one.must, one.aim, one.met, one.cells, one.of) for name, one in found.items()
    } == {
        f"{BARE} <= 64, geometric mean": ("1.080", "1.150", "must", 49, 49),
        "its worst cell": ("0.980", "1.020", "aim", 49, 49),
        f"{SHARE}, 7B to 72B, geometric mean": ("92.0%", "97.0%", "must", 28, 28),
        f"{SHARE}, 0.5B and 1.5B, geometric mean": ("70.0%", "85.0%", "aim", 14, 14),
        f"{WHOLE}, geometric mean": ("1.180", "1.280", "must", 49, 49),
        "the same, 0.5B at M = 1": ("1.500", "2.000", "missed", 1, 1),
        f"{BARE} > 64, worst cell": ("0.970", "1.000", "aim", 14, 14),
    }


def test_a_target_is_of_its_own_cells_alone():
    """Each group of cells has a value of its own."""

    def share(one):
        groups = {"0.5b": 0.8, "1.5b": 0.8, "3b": 0.1}
        return 0.2 if one.m > 64 else groups.get(one.model, 0.9)

    found = by_name(
        kept(
            share=share,
            bare=lambda one: 0.96 if one.m > 64 else 1.2,
            whole=lambda one: 0.5
            if one.m > 64
            else 2.1
            if (one.model, one.m) == ("0.5b", 1)
            else 1,
        )
    )
    assert found[f"{BARE} <= 64, geometric mean"].value == "1.200"
    assert found["its worst cell"].met == "aim"
    large, small = (found[f"{SHARE}, {w}, geometric mean"] for w in ("7B to 72B", "0.5B and 1.5B"))
    assert large.value.startswith("90.0%, worst 90.0%")
    assert small.value.startswith("80.0%, worst 80.0%")
    assert (large.met, small.met) == ("missed", "must")
    assert found[f"{WHOLE}, geometric mean"].value == f"{2.1 ** (1 / 49):.3f}"
    assert found["the same, 0.5B at M = 1"].value == "2.100 (0.5b at M = 1)"
    assert found[f"{BARE} > 64, worst cell"].value.startswith("0.960")
    assert found[f"{BARE} > 64, worst cell"].met == "missed"


def test_the_worst_cells_are_named():
    low = cell("14b", 4)
    found = by_name(
        kept(
            share=lambda one: 0.5 if one == low else 0.98,
            bare=lambda one: 0.97 if one == low else 1.3,
        )
    )
    assert found[f"{SHARE}, 7B to 72B, geometric mean"].value.endswith("worst 50.0% (14b at M = 4)")
    worst = found["its worst cell"]
    assert (worst.value, worst.met) == ("0.970 (14b at M = 4)", "missed")


def test_targets_on_fewer_cells_are_partial_and_without_cells_left_out():
    found = by_name(kept([cell("3b", m) for m in FEW_TOKENS]))
    assert {name: (one.cells, one.of, one.partial) for name, one in found.items()} == {
        f"{BARE} <= 64, geometric mean": (7, 49, True),
        "its worst cell": (7, 49, True),
        f"{WHOLE}, geometric mean": (7, 49, True),
        f"{BARE} > 64, worst cell": (2, 14, True),
    }
    assert targets(Record("decode", 0, 9, (MEASURED,), ())) == []


def test_a_line_has_bandwidth_and_speeds():
    record = kept([cell("7b", 16)])
    one = cell("7b", 16)
    assert {column.heading: column.text(record, record.cells[0]) for column in SUITE.columns} == {
        "model": "7b",
        "M": "16",
        "gate-up us": f"{one.gate_up_bytes / 3.8e6:.2f}",
        "its kernel": "decode_16",
        "TB/s": "3.80",
        "of copy": "95.0%",
        "bare": "1.100",
        "mlp us": "100.00",
        "best other": "1.200",
        "batch/mlp": "1.05",
    }
    assert all(len(column.heading) <= column.width for column in SUITE.columns)


def test_a_line_tells_who_failed():
    one = cell("7b", 16)
    failed = row("7b", 16, outcomes(one) | {"gate-up": FAILED, "mlp-batch": FAILED})
    record = Record("decode", 0, 9, (MEASURED,), (failed,))
    by_heading = {column.heading: column.text(record, failed) for column in SUITE.columns}
    assert by_heading["gate-up us"] == "failed"
    assert by_heading["TB/s"] == by_heading["of copy"] == by_heading["batch/mlp"] == "-"
    assert by_heading["best other"] == "1.200"


# The command


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "decode.json"
    records.save(kept(), path)
    return path


def test_a_kept_record_is_printed(file, capsys):
    pytest.importorskip("rich")
    assert main(["bench", "--from", str(file)]) == 0
    text = capsys.readouterr().out
    for words in (
        "copies 4.00 TB/s, read plus written",
        "95.0%",
        "decode_16",
        "gate-up against",
        "63",
    ):
        assert words in text, words
    assert "not measured" not in text
    assert "the paper's claims" not in text
    lines = [line.split() for line in text.splitlines() if line.split()[:2] == ["72b", "256"]]
    assert lines[0][5:7] == ["95.0%", "1.100"]


def test_the_command_measures_some_of_the_cells(monkeypatch, capsys):
    pytest.importorskip("rich")
    asked = []

    def run(begun, wanted, find, path, **options):
        asked.append((begun.suite, begun.rounds, [str(one) for one in wanted]))
        options["listener"].started(kept(wanted))
        options["listener"].finished(kept(wanted), kept(wanted).cells[-1])
        return kept(wanted)

    monkeypatch.setattr(bench_run, "run", run)
    chosen = ["--models", "0.5b,72b", "--tokens", "1,256", "--rounds", "5"]
    assert main(["bench", "--suite", "decode", *chosen]) == 0
    cells = [f"{model} at M = {m}" for model in ("0.5b", "72b") for m in (1, 256)]
    assert asked == [("decode", 5, cells)]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["72b"]]
    assert len(lines) == 3  # kept before: two; measured now: one
    assert all(line.split()[5] == "95.0%" for line in lines)


def test_more_kernels_are_refused(capsys, tmp_path):
    pytest.importorskip("rich")
    assert main(["bench", "--suite", "decode", "--also", str(tmp_path)]) == 1
    assert "not for suite decode" in capsys.readouterr().err


def test_bandwidth_and_speed_are_drawn_by_tokens(tmp_path):
    pytest.importorskip("matplotlib")
    drawn = plots.draw(kept(), SUITE.plots, tmp_path)
    assert [path.name for path in drawn] == ["decode_bandwidth.png", "decode_bare.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    figure = decode.copy_share(kept(share=lambda one: one.m / 512))
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines["72B"].get_xdata()) == list(FEW_TOKENS)
    assert list(lines["72B"].get_ydata()) == pytest.approx([m / 512 for m in FEW_TOKENS])
    assert plots.draw(Record("decode", 0, 9, (MEASURED,), ()), SUITE.plots, tmp_path) == []
