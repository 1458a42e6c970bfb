"""Old and odd machines: each is either served, or told in one sentence what is missing."""

from __future__ import annotations

import json
import pathlib
import sys
import warnings
from types import SimpleNamespace

import pytest

import cuswiglu
from cuswiglu import arrays, environment
from cuswiglu.cli import main
from cuswiglu.common.device import DeviceInfo
from cuswiglu.runtime import driver
from cuswiglu.runtime.driver import DriverError
from cuswiglu.selection import select, tuned
from tests.helpers.device_arrays import device_poisoned, on_device
from tests.helpers.fake_driver import Result
from tests.helpers.problems import problem, weight
from tests.helpers.tables import H200, table_for

K, N = 128, 96


@pytest.fixture
def report(monkeypatch, capsys):
    """report(**packages): `cuswiglu info`, as JSON and as text, where these are installed."""

    def read(**packages):
        if packages:
            named = {name.replace("_", "-"): version for name, version in packages.items()}
            monkeypatch.setattr(environment, "version_of", lambda name: named.get(name, ""))
        assert main(["info"]) == 0
        text = capsys.readouterr().out
        assert main(["info", "--json"]) == 0
        return json.loads(capsys.readouterr().out), text

    return read


@pytest.fixture
def machine(gpu, monkeypatch):
    """The fake GPU, in a process where its driver is installed."""
    monkeypatch.setattr(driver, "installed", lambda: True)
    return gpu


def call(**options):
    x, gate, up = device_poisoned(64, K), weight(K, N, "k"), weight(K, N, "k")
    return cuswiglu.swiglu(x, on_device(gate), on_device(up), **options)


def one_sentence(text):
    """Told in one line, without a traceback in it."""
    assert "\n" not in text.strip()
    assert len(text) < 300
    return True


# Drivers


def test_a_driver_that_is_too_old_says_which_is_needed(machine, report):
    machine.driver.version = 11080
    with pytest.raises(DriverError) as caught:
        call()
    words = (
        "the CUDA driver supports CUDA 11.8, the kernels need 12.0 or newer (driver 525): update "
        "the NVIDIA driver"
    )
    assert str(caught.value) == words
    found, text = report()
    assert (found["backend"], found["reason"]) == ("numpy", words)
    assert f"backend:    numpy: {words}\n" in text


def test_without_a_driver_it_says_what_the_kernels_need(monkeypatch, report):
    monkeypatch.setattr(driver, "installed", lambda: False)
    found, _ = report()
    assert (found["backend"], found["gpus"]) == ("numpy", [])
    assert found["reason"] == driver.NO_DRIVER
    assert one_sentence(found["reason"])


@pytest.mark.parametrize("hidden", ["", "-1", "7"])
def test_gpus_that_a_variable_hides_are_said_to_be_hidden(machine, monkeypatch, report, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    machine.driver.failing["cuInit"] = Result.CUDA_ERROR_NO_DEVICE
    with pytest.raises(DriverError, match=f"CUDA_VISIBLE_DEVICES is '{hidden}', which hides them"):
        call()
    found, _ = report()
    assert "unset it, or name a GPU that is here" in found["reason"]
    assert found["variables"]["CUDA_VISIBLE_DEVICES"] == hidden


def test_a_driver_without_a_gpu_is_not_blamed_on_a_variable(machine, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.driver.failing["cuInit"] = Result.CUDA_ERROR_NO_DEVICE
    with pytest.raises(DriverError) as caught:
        call()
    assert "CUDA_VISIBLE_DEVICES" not in str(caught.value)
    assert "is there an NVIDIA GPU?" in str(caught.value)


# GPUs

OTHERS = [
    DeviceInfo("NVIDIA A100-SXM4-80GB", (8, 0), 108),
    DeviceInfo("NVIDIA L40S", (8, 9), 142),
    DeviceInfo("NVIDIA B200", (10, 0), 148),
    DeviceInfo("NVIDIA GeForce RTX 5090", (12, 0), 170),
]
BY_OTHER = pytest.mark.parametrize("device", OTHERS, ids=lambda device: device.name)


def become(machine, device):
    machine.driver.name, machine.driver.capability = device.name.encode(), device.capability
    machine.driver.multiprocessors = device.multiprocessors


@BY_OTHER
def test_a_gpu_of_another_kind_takes_the_portable_path_and_says_so(machine, report, device):
    become(machine, device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()
    assert [name for name, _, _ in machine.portable] == ["swiglu"]
    assert machine.driver.launches == []
    found, _ = report()
    capability = ".".join(map(str, device.capability))
    assert found["backend"] == "cublas"
    assert found["reason"] == (
        f"{device.name} has compute capability {capability}, the kernels need 9.0 (Hopper)"
    )


@BY_OTHER
def test_a_kernel_that_is_asked_for_on_a_gpu_of_another_kind_is_refused(machine, device):
    become(machine, device)
    with pytest.raises(ValueError, match="needs a Hopper GPU") as caught:
        call(variant="dual")
    assert device.name in str(caught.value)
    assert "use variant='auto'" in str(caught.value)
    assert one_sentence(str(caught.value))


@pytest.mark.parametrize("multiprocessors", [16, 32, 60])
@pytest.mark.parametrize("m", [1, 64, 3000])
def test_a_mig_slice_runs_kernels_on_what_it_has(machine, multiprocessors, m):
    become(machine, DeviceInfo("NVIDIA H200 MIG 1g.18gb", (9, 0), multiprocessors))
    cuswiglu.swiglu(device_poisoned(m, K), *(on_device(weight(K, N, "k")) for _ in range(2)))
    (launch,) = machine.driver.launches
    assert 1 <= launch.grid[0] * launch.grid[1] <= 2 * multiprocessors


def test_what_was_measured_on_a_whole_gpu_says_nothing_of_a_slice(machine, tables):
    asked = problem(m=64, n=N, k=K)
    tables(packaged=table_for(asked, "cublas", 1, 1.0))
    part = DeviceInfo("NVIDIA H200 MIG 1g.18gb", (9, 0), 16, H200.driver)
    assert select.select(asked, H200).variant == "cublas"
    assert select.select(asked, part).reason.startswith("estimated")


# Packages


def test_a_cupy_that_knows_no_bfloat16_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="13.6.0"))
    with pytest.raises(
        ImportError, match=r"need CuPy 14 or newer, which .* got CuPy 13\.6\.0: pip"
    ):
        arrays.cupy_module.__wrapped__()


MIXED = {
    "both CuPys": (
        {"cupy_cuda12x": "14.2.0", "cupy_cuda13x": "14.2.0"},
        "cupy-cuda12x and cupy-cuda13x are both installed",
    ),
    "CuPy of 12, bindings of 13": (
        {"cupy_cuda12x": "14.2.0", "cuda_bindings": "13.0.3"},
        "cupy-cuda12x and cuda-bindings 13.0.3 are of different CUDA versions",
    ),
    "CuPy of 13, bindings of 12": (
        {"cupy_cuda13x": "14.2.0", "cuda_bindings": "12.9.2"},
        "cupy-cuda13x and cuda-bindings 12.9.2 are of different CUDA versions",
    ),
    "CuPy 13": (
        {"cupy_cuda12x": "13.6.0", "cuda_bindings": "12.9.2"},
        "cupy-cuda12x 13.6.0 knows no bfloat16: upgrade to 14",
    ),
}


@pytest.mark.parametrize("kind", MIXED)
def test_packages_that_do_not_go_together_are_warned_of(monkeypatch, report, kind):
    monkeypatch.setattr(driver, "installed", lambda: False)
    packages, words = MIXED[kind]
    found, text = report(**packages)
    (warning,) = found["warnings"]
    assert words in warning
    assert f"warning:    {warning}\n" in text
    assert one_sentence(warning)


def test_packages_of_cuda_13_on_a_driver_of_cuda_12_are_warned_of(machine, report):
    found, _ = report(cupy_cuda13x="14.2.0", cuda_bindings="13.0.3")
    (warning,) = found["warnings"]
    assert "needs a driver that supports CUDA 13, this one supports 12.9" in warning


@pytest.mark.parametrize("cuda", ["12", "13"])
def test_packages_of_one_cuda_version_are_not_warned_of(machine, report, cuda):
    machine.driver.version = 13000
    found, text = report(
        **{f"cupy_cuda{cuda}x": "14.2.0", "cuda_bindings": f"{cuda}.0.1", "numpy": "2.3.0"}
    )
    assert found["warnings"] == []
    assert "warning" not in text


# Homes


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError, OSError])
def test_a_home_that_cannot_be_read_is_as_one_without_a_table(machine, monkeypatch, error):
    stat = pathlib.Path.stat

    def refused(self, **options):
        if self == tuned.cache_path():
            raise error(13, "Permission denied")
        return stat(self, **options)

    monkeypatch.setattr(pathlib.Path, "stat", refused)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
    assert len(machine.driver.launches) == 1
