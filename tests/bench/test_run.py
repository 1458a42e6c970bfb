"""A run without a GPU: cells are kept as they are done, resumed, limited; missing ones told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuswiglu.bench import record as records
from cuswiglu.bench.cells import select
from cuswiglu.bench.contenders import Found
from cuswiglu.bench.measure import DeviceLostError, Measured
from cuswiglu.bench.run import Bench, Listener, begin, run
from tests.bench.test_records import FAILED, SESSION, outcomes

CELLS = select("quick")


class Watch:
    """A monitor that has seen the same thing each time."""

    def __init__(self, seen=None, trouble=""):
        self.seen, self.trouble = seen or {"reasons": ["power cap"]}, trouble

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def take(self):
        return self.seen


class Machine:
    """Stands in for a GPU: each cell takes ten seconds, and `measured` says which were asked."""

    def __init__(self, session=SESSION, missing=None, watch=None, answers=None):
        self.now, self.measured = 0.0, []
        self.missing = missing or {}
        self.answers = answers or {}
        self.bench = Bench(
            gpu=lambda: "0000:01:00.0",
            session=lambda gpu: session,
            find=lambda suite: Found([], self.missing),
            measure=self.measure,
            watch=lambda gpu: watch or Watch(),
            clock=lambda: self.now,
        )

    def measure(self, cell, contenders, *, seed, rounds, whole_mlp, layers, doing):
        self.now += 10
        self.measured.append(cell)
        doing("timing")
        answer = self.answers.get(cell, outcomes())
        if isinstance(answer, Exception):
            raise answer
        return Measured(3, answer)


def start(path=None, *, resume=False, suite="quick"):
    return begin(suite, 0, 9, path, resume=resume)


def test_every_cell_is_kept_as_soon_as_it_is_done(tmp_path):
    path, machine = tmp_path / "quick.json", Machine()
    kept = []
    listener = Listener(finished=lambda record, cell: kept.append(records.load(path)))
    made = run(start(path), CELLS, path, bench=machine.bench, listener=listener)
    assert [len(record.cells) for record in kept] == [1, 2, 3, 4]
    assert kept[-1] == records.load(path) == made
    assert [cell.cell for cell in made.cells] == machine.measured == CELLS
    assert made.cells[0].sets == 3
    assert made.cells[0].seconds == 10.0
    assert made.missing_cells(CELLS) == []


def test_a_crash_leaves_the_finished_cells_and_resume_measures_the_rest(tmp_path):
    path = tmp_path / "quick.json"
    crashing = Machine(answers={CELLS[2]: DeviceLostError("dual crashed the GPU")})
    with pytest.raises(DeviceLostError, match="dual crashed"):
        run(start(path), CELLS, path, bench=crashing.bench)
    assert [cell.cell for cell in records.load(path).cells] == CELLS[:2]
    machine = Machine()
    made = run(start(path, resume=True), CELLS, path, bench=machine.bench)
    assert machine.measured == CELLS[2:]
    assert [cell.cell for cell in made.cells] == CELLS
    assert [cell.session for cell in made.cells] == [0, 0, 1, 1]
    assert records.load(path) == made


def test_no_cell_is_started_after_the_limit():
    machine = Machine()
    made = run(start(), CELLS, limit_s=15, bench=machine.bench)
    assert machine.measured == CELLS[:2]
    assert made.missing_cells(CELLS) == CELLS[2:]


def test_a_complete_record_is_not_measured_again(tmp_path):
    path = tmp_path / "quick.json"
    made = run(start(path), CELLS, path, bench=Machine().bench)
    idle = Machine()
    assert run(start(path, resume=True), CELLS, path, bench=idle.bench) == made
    assert idle.measured == []


def test_resume_without_a_record_starts_one(tmp_path):
    path = tmp_path / "quick.json"
    made = run(start(path, resume=True), CELLS[:1], path, bench=Machine().bench)
    assert records.load(path) == made


def test_a_record_is_not_overwritten(tmp_path):
    path = tmp_path / "quick.json"
    run(start(path), CELLS[:1], path, bench=Machine().bench)
    with pytest.raises(FileExistsError, match="--resume"):
        start(path)
    with pytest.raises(ValueError, match="suite quick, this run paper"):
        start(path, resume=True, suite="paper")
    with pytest.raises(ValueError, match="rounds 9, this run 5"):
        begin("quick", 0, 5, path, resume=True)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(SESSION, kernels="feed"), "kernels 0123456789abcdef, this run has feed"),
        (replace(SESSION, gpu={"name": "NVIDIA H100"}), "GPU NVIDIA H200, this run has NVIDIA H10"),
    ],
)
def test_other_kernels_or_another_gpu_are_not_mixed_in(tmp_path, other, words):
    path = tmp_path / "quick.json"
    run(start(path), CELLS[:1], path, bench=Machine().bench)
    machine = Machine(session=other)
    with pytest.raises(ValueError, match=words):
        run(start(path, resume=True), CELLS, path, bench=machine.bench)
    assert machine.measured == []


def test_missing_contenders_are_recorded_with_the_reason(tmp_path):
    path = tmp_path / "quick.json"
    reason = {"jax": "jax sees no GPU, only cpu"}
    told = []
    listener = Listener(started=told.append)
    run(start(path), CELLS[:1], path, bench=Machine(missing=reason).bench, listener=listener)
    assert told[0].sessions[0].missing == records.load(path).sessions[0].missing == reason


def test_a_contender_that_failed_in_a_cell_is_recorded_and_the_run_goes_on(tmp_path):
    path = tmp_path / "quick.json"
    machine = Machine(answers={CELLS[0]: outcomes() | {"jax": FAILED}})
    run(start(path), CELLS, path, bench=machine.bench)
    kept = records.load(path)
    assert kept.cells[0].outcomes["jax"].error == "OutOfMemoryError: no memory"
    assert kept.cells[0].us("auto") == 100.0
    assert len(kept.cells) == 4


def test_a_gpu_that_is_held_down_by_heat_is_told_and_the_power_cap_is_not():
    hot = Watch({"reasons": ["power cap", "hardware thermal slowdown"]})
    made = run(start(), CELLS[:2], bench=Machine(watch=hot).bench)
    assert made.sessions[0].warnings == [
        f"{cell}: clocks were held down, hardware thermal slowdown" for cell in CELLS[:2]
    ]
    assert run(start(), CELLS, bench=Machine().bench).sessions[0].warnings == []


def test_a_busy_gpu_stays_in_the_record(tmp_path):
    path = tmp_path / "quick.json"
    busy = replace(SESSION, warnings=["the GPU was 40% busy before the run"])
    run(start(path), CELLS[:1], path, bench=Machine(session=busy).bench)
    assert records.load(path).sessions[0].warnings == busy.warnings


def test_a_monitor_that_died_is_told_once():
    made = run(start(), CELLS, bench=Machine(watch=Watch(trouble="nvidia-smi failed")).bench)
    words = "clocks and power were not recorded to the end: nvidia-smi failed"
    assert made.sessions[0].warnings == [words]
