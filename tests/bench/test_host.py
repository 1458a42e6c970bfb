"""The suite `host`: what is timed, what each contender calls, and how it is told."""

from __future__ import annotations

import dataclasses
import gc
import sys

import pytest

from benchmarks.targets import targets
from cuswiglu.bench import record as records
from cuswiglu.bench.record import Outcome, Record
from cuswiglu.bench.suites import host
from cuswiglu.bench.suites.host import SUITE
from cuswiglu.cli import main
from cuswiglu.selection import portable_cost
from tests.helpers.bench_cells import SETS, named, on_gpu, poisoned_inputs
from tests.helpers.bench_records import SESSION, row
from tests.helpers.compiled import DECODE_PLAIN, PLAIN
from tests.helpers.fake_driver import PLANS

# The clock


@pytest.fixture
def watched(gpu, monkeypatch):
    """watched.now is the host's clock, in seconds; waiting for the GPU takes a second."""

    class Watched:
        now, waits, called = 0.0, 0, []

        def synchronize(self):
            self.now += 1
            self.waits += 1

        def take(self, number, us):
            assert not gc.isenabled() or self.waits == 0  # but for warming up
            self.called.append(number)
            self.now += us * 1e-6

    found = Watched()
    gpu.cupy.cuda.runtime.deviceSynchronize = found.synchronize
    monkeypatch.setattr(host, "cupy_module", lambda: gpu.cupy)
    monkeypatch.setattr(host.time, "perf_counter", lambda: found.now)
    return found


def test_waiting_for_the_gpu_is_not_timed(watched):
    elapsed = host.HostTimed(lambda number: watched.take(number, 20)).prepare(None, SETS)
    assert elapsed(50) == pytest.approx(50 * SETS * 20)
    assert watched.waits > 0


def test_the_gpu_is_waited_for_before_the_launch_queue_fills(watched):
    elapsed = host.HostTimed(lambda number: watched.take(number, 20)).prepare(None, SETS)
    watched.called.clear()
    elapsed(100)
    assert len(watched.called) == 100 * SETS
    assert watched.waits >= 100 * SETS / host.BATCH


def test_a_batch_that_was_disturbed_does_not_count(watched):
    """As by another process: the median of the batches is told."""
    slow = iter([20] * 2 + [20] * 40 + [5000] * 40 + [20] * 1000)
    elapsed = host.HostTimed(lambda number: watched.take(number, next(slow))).prepare(None, SETS)
    assert elapsed(100) == pytest.approx(100 * SETS * 20)


def test_calls_take_turns_through_the_sets(watched):
    elapsed = host.HostTimed(lambda number: watched.take(number, 1)).prepare(None, 3)
    watched.called.clear()
    elapsed(2)
    assert watched.called == [0, 1, 2, 0, 1, 2]


def test_garbage_is_collected_again_after_an_error(watched):
    def broken(number):
        if watched.waits:
            raise RuntimeError("no memory")

    elapsed = host.HostTimed(broken).prepare(None, SETS)
    with pytest.raises(RuntimeError, match="no memory"):
        elapsed(1)
    assert gc.isenabled()


# Contenders


@pytest.fixture
def drawn(gpu, monkeypatch):
    """Inputs of the small cell on the GPU that is not there."""
    monkeypatch.setattr(host, "poison", lambda array: None)
    with on_gpu(gpu, monkeypatch, host):
        yield poisoned_inputs()


def runner(name, drawn):
    return named(name, host.calls()).make(drawn)


@pytest.mark.usefixtures("any_evenness")
@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("planned", 2),
        ("captured", 2),
        ("unplanned", 2),
        ("unplanned-swiglu", 1),
        ("bare-launches", 2),
    ],
)
def test_a_call_launches_the_kernels_on_the_weights_of_its_set(gpu, drawn, name, launches):
    made = runner(name, drawn)
    for number in range(SETS):
        made.timed.call(number)
        gpu.driver.launches = []
        gpu.driver.calls = []
        result = made.timed.call(number)
        assert len(gpu.driver.launches) == launches
        assert gpu.driver.count(PLANS) == 0
        first, last = gpu.driver.launches[0], gpu.driver.launches[-1]
        if name != "captured":  # which has an x of its own
            assert first.addresses[0] == drawn.x.data.ptr
        assert first.addresses[1] == drawn.w_gate[number].data.ptr
        assert last.addresses[3] == result.data.ptr
        if launches == 2:
            assert last.addresses[1] == drawn.w_down[number].data.ptr
            one_weight = [*PLAIN, *DECODE_PLAIN]
            assert last.entry in {entry.name for kernel in one_weight for entry in kernel.entries}


@pytest.mark.usefixtures("any_evenness")
def test_bare_launches_are_the_driver_calls_alone(gpu, drawn):
    made = runner("bare-launches", drawn)
    gpu.driver.calls = []
    made.timed.call(0)
    assert [name for name, _ in gpu.driver.calls] == ["cuLaunchKernelEx"] * 2


def test_without_a_second_kernel_there_are_no_bare_launches(drawn, monkeypatch):
    """Where auto gives the down projection to cuBLAS: it is faster, and tokens are many."""
    monkeypatch.setattr(portable_cost, "LAUNCH_US", float("-inf"))
    drawn = poisoned_inputs(dataclasses.replace(drawn.cell, m=300))
    with pytest.raises(RuntimeError, match="no two kernels to launch: w_down take cublas"):
        runner("bare-launches", drawn)


def test_only_the_captured_call_is_replayed_from_a_graph(gpu, drawn):
    names = ("planned", "captured", "unplanned", "unplanned-swiglu", "cupy-matmul")
    assert [name for name in names if runner(name, drawn).captured] == ["captured"]


def test_torch_is_listed_as_missing_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = SUITE.find()
    assert list(found.missing) == ["torch-eager"]
    assert [one.name for one in found.contenders] == [
        name for name in host.NAMES if name != "torch-eager"
    ]


# Tables and targets


def kept(planned=18.0, bare=12.0, unplanned=20.0, eager=100.0):
    times = {"planned": planned, "bare-launches": bare, "unplanned": unplanned}
    made = {name: Outcome(time, captured=False) for name, time in times.items()}
    made["cupy-matmul"] = Outcome(error="CUDARuntimeError: no memory")
    if eager:
        made["torch-eager"] = Outcome(eager, captured=False)
    rows = tuple(row(cell.model, cell.m, made) for cell in SUITE.cells)
    return Record("host", 0, 9, (SESSION,), rows)


def test_a_line_has_the_times_and_their_ratios():
    record = kept()
    (one, _), columns = record.cells, SUITE.columns
    assert {column.heading: column.text(record, one) for column in columns} == {
        "model": "0.5b",
        "M": "1",
        "planned": "18.00",
        "captured": "-",
        "unplanned": "20.00",
        "unplanned-swiglu": "-",
        "bare-launches": "12.00",
        "torch-eager": "100.00",
        "cupy-matmul": "failed",
        "planned/bare": "1.50",
        "eager/unplanned": "5.00",
    }


@pytest.mark.parametrize(
    ("planned", "eager", "met"),
    [(14.0, 130.0, ["aim", "aim"]), (18.0, 70.0, ["must", "must"]), (20.0, 50.0, ["missed"] * 2)],
)
def test_targets_are_met_by_lesshost_time(planned, eager, met):
    found = targets(kept(planned=planned, eager=eager))
    assert [figure.met for figure in found] == met
    assert [(figure.cells, figure.of) for figure in found] == [(2, 2)] * 2
    assert not any(figure.partial for figure in found)


def test_targets_without_their_contenders_are_left_out():
    (figure,) = targets(kept(eager=None))
    assert "bare launches" in figure.name


def test_a_kept_record_is_printed(capsys, tmp_path):
    pytest.importorskip("rich")
    path = tmp_path / "host.json"
    records.save(kept(), path)
    assert main(["bench", "--from", str(path)]) == 0
    text = capsys.readouterr().out
    for words in ("bare-launches", "1.50", "failed: 0.5b at M = 16"):
        assert words in text, words
