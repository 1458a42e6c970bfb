"""nvidia-smi's answers: samples, summaries, a busy GPU, and no nvidia-smi at all."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from cuswiglu.bench.run import nvidia_smi

GPU = "0000:01:00.0"


@pytest.fixture
def answers(monkeypatch):
    """What nvidia-smi says, by the first or last fields asked for; `asked` holds the commands."""
    said = {"utilization.gpu": "0\n", "pid,process_name": "", "asked": []}

    def run(command, **options):
        said["asked"].append(command)
        fields = command[1].partition("=")[2]
        matching = (key for key in said if fields.startswith(key) or fields.endswith(key))
        answer = next((said[key] for key in matching), None)
        if answer is None:
            return SimpleNamespace(returncode=2, stdout=f"Field {fields} is not valid", stderr="")
        return SimpleNamespace(returncode=0, stdout=answer, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return said


def test_a_sample_is_read_and_what_the_driver_does_not_know_is_none():
    sample = nvidia_smi.parse(["1755", "642.10", "61", "100", "0x0000000000000024"])
    assert (sample.sm_mhz, sample.watts, sample.celsius, sample.utilisation) == (
        1755,
        642.1,
        61,
        100,
    )
    assert sample.reasons == 0x24
    unknown = nvidia_smi.parse(["[N/A]", "[N/A]", "61", "[N/A]", "[N/A]"])
    assert (unknown.sm_mhz, unknown.watts, unknown.utilisation, unknown.reasons) == (
        None,
        None,
        None,
        0,
    )


def test_a_summary_is_of_the_samples_at_work():
    idle = nvidia_smi.parse(["345", "90", "40", "0", "0x1"])
    work = [
        nvidia_smi.parse([clock, watts, heat, "100", reasons])
        for clock, watts, heat, reasons in (
            ("1980", "500", "50", "0x0"),
            ("1400", "700", "61", "0x4"),
            ("1700", "690", "60", "0x44"),
        )
    ]
    assert nvidia_smi.summary([idle, *work]) == {
        "samples": 3,
        "sm_mhz": [1400, 1700, 1980],
        "watts": [690, 700],
        "celsius": 61,
        "reasons": ["power cap", "hardware thermal slowdown"],
    }
    assert nvidia_smi.summary([idle])["reasons"] == ["idle"]
    assert nvidia_smi.summary([]) == {}


def test_a_quiet_gpu_is_not_busy(answers):
    answers["pid,process_name"] = f"{os.getpid()}, python\n"
    assert nvidia_smi.busy(GPU) == []
    assert f"--id={GPU}" in answers["asked"][0]


def test_load_and_other_processes_are_told(answers):
    answers["utilization.gpu"] = "41\n"
    answers["pid,process_name"] = "77, train.py\n"
    assert nvidia_smi.busy(GPU) == [
        "the GPU was 41% busy before the run",
        "other processes were on the GPU before the run: train.py 77",
    ]


def test_identity_of_a_gpu(answers):
    answers["name,driver_version"] = "NVIDIA H200, 580.159.04, 700.00, 1980, 143771\n"
    assert nvidia_smi.identity(GPU) == {
        "name": "NVIDIA H200",
        "driver": "580.159.04",
        "power_limit_w": 700.0,
        "max_sm_mhz": 1980.0,
        "memory_mib": 143771.0,
    }


def test_a_missing_nvidia_smi_is_an_error_in_words(monkeypatch):
    def absent(*arguments, **options):
        raise FileNotFoundError(2, "No such file or directory", "nvidia-smi")

    monkeypatch.setattr(subprocess, "run", absent)
    with pytest.raises(nvidia_smi.SmiError, match="nvidia-smi cannot be run"):
        nvidia_smi.busy(GPU)


def wait_for(condition):
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never happened")


def test_a_monitor_samples_until_it_is_left(answers):
    answers["clocks.sm"] = "1755, 642.10, 61, 100, 0x4\n"
    with nvidia_smi.Monitor(GPU) as monitor:
        wait_for(lambda: monitor._samples)
        assert monitor.take()["sm_mhz"] == [1755, 1755, 1755]
    assert monitor.trouble == ""
    assert not monitor._thread.is_alive()


def test_an_older_driver_is_asked_by_the_older_name(answers):
    answers["clocks_throttle_reasons.active"] = "1755, 642.10, 61, 100, 0x4\n"
    with nvidia_smi.Monitor(GPU) as monitor:
        wait_for(lambda: monitor._samples)
    assert monitor.take()["reasons"] == ["power cap"]


def test_a_monitor_without_nvidia_smi_says_so(answers):
    with nvidia_smi.Monitor(GPU) as monitor:
        wait_for(lambda: monitor.trouble)
    assert "is not valid" in monitor.trouble
    assert monitor.take() == {}
