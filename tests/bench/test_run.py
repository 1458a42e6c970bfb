"""A run without a GPU: cells are kept as they are done, resumed, limited; missing ones told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuswiglu.bench import record as records
from cuswiglu.bench.run.measure import DeviceLostError
from cuswiglu.bench.run.run import Listener, begin
from cuswiglu.bench.suites import SUITES
from tests.helpers.bench_machine import Machine, Watch
from tests.helpers.bench_records import FAILED, SESSION, outcomes

CELLS = SUITES["quick"].select()


def start(path=None, *, resume=False, suite="quick"):
    return begin(suite, 0, 9, path, resume=resume)


def test_every_cell_is_kept_as_soon_as_it_is_done(tmp_path):
    path, machine = tmp_path / "quick.json", Machine()
    kept = []
    listener = Listener(finished=lambda record, cell: kept.append(records.load(path)))
    made = machine.run(start(path), CELLS, path, listener=listener)
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
        crashing.run(start(path), CELLS, path)
    assert [cell.cell for cell in records.load(path).cells] == CELLS[:2]
    machine = Machine()
    made = machine.run(start(path, resume=True), CELLS, path)
    assert machine.measured == CELLS[2:]
    assert [cell.cell for cell in made.cells] == CELLS
    assert [cell.session for cell in made.cells] == [0, 0, 1, 1]
    assert records.load(path) == made


def test_no_cell_is_started_after_the_limit():
    machine = Machine()
    made = machine.run(start(), CELLS, limit_s=15)
    assert machine.measured == CELLS[:2]
    assert made.missing_cells(CELLS) == CELLS[2:]


def test_a_complete_record_is_not_measured_again(tmp_path):
    path = tmp_path / "quick.json"
    made = Machine().run(start(path), CELLS, path)
    idle = Machine()
    assert idle.run(start(path, resume=True), CELLS, path) == made
    assert idle.measured == []


def test_resume_without_a_record_starts_one(tmp_path):
    path = tmp_path / "quick.json"
    made = Machine().run(start(path, resume=True), CELLS[:1], path)
    assert records.load(path) == made


def test_a_record_is_not_overwritten(tmp_path):
    path = tmp_path / "quick.json"
    Machine().run(start(path), CELLS[:1], path)
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
    Machine().run(start(path), CELLS[:1], path)
    machine = Machine(session=other)
    with pytest.raises(ValueError, match=words):
        machine.run(start(path, resume=True), CELLS, path)
    assert machine.measured == []


def test_missing_contenders_are_recorded_with_the_reason(tmp_path):
    path = tmp_path / "quick.json"
    reason = {"jax": "jax sees no GPU, only cpu"}
    told = []
    listener = Listener(started=told.append)
    Machine(missing=reason).run(start(path), CELLS[:1], path, listener=listener)
    assert told[0].sessions[0].missing == records.load(path).sessions[0].missing == reason


def test_a_contender_that_failed_in_a_cell_is_recorded_and_the_run_goes_on(tmp_path):
    path = tmp_path / "quick.json"
    machine = Machine(answers={CELLS[0]: outcomes() | {"jax": FAILED}})
    machine.run(start(path), CELLS, path)
    kept = records.load(path)
    assert kept.cells[0].outcomes["jax"].error == "OutOfMemoryError: no memory"
    assert kept.cells[0].us("auto") == 100.0
    assert len(kept.cells) == 4


def test_a_gpu_that_is_held_down_by_heat_is_told_and_the_power_cap_is_not():
    hot = Watch({"reasons": ["power cap", "hardware thermal slowdown"]})
    made = Machine(watch=hot).run(start(), CELLS[:2])
    assert made.sessions[0].warnings == [
        f"{cell}: clocks were held down, hardware thermal slowdown" for cell in CELLS[:2]
    ]
    assert Machine().run(start(), CELLS).sessions[0].warnings == []


def test_a_busy_gpu_stays_in_the_record(tmp_path):
    path = tmp_path / "quick.json"
    busy = replace(SESSION, warnings=["the GPU was 40% busy before the run"])
    Machine(session=busy).run(start(path), CELLS[:1], path)
    assert records.load(path).sessions[0].warnings == busy.warnings


def test_a_monitor_that_died_is_told_once():
    made = Machine(watch=Watch(trouble="nvidia-smi failed")).run(start(), CELLS)
    words = "clocks and power were not recorded to the end: nvidia-smi failed"
    assert made.sessions[0].warnings == [words]
