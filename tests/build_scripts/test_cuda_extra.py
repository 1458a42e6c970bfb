"""Which extra `make` installs: the one that fits the driver."""

from __future__ import annotations

import ctypes

import pytest

from build_scripts.cuda_extra import cuda_extra


class FakeCuda:
    """A libcuda that supports a CUDA version, or fails with a status."""

    def __init__(self, version, status=0):
        self._version, self._status = version, status

    def cuDriverGetVersion(self, pointer):  # noqa: N802
        pointer._obj.value = self._version
        return self._status


@pytest.mark.parametrize(
    ("version", "extra"),
    [(11080, ""), (12000, "cuda12"), (12090, "cuda12"), (13000, "cuda13"), (13010, "cuda13")],
)
def test_the_extra_follows_the_drivers_version(monkeypatch, version, extra):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCuda(version))
    assert cuda_extra() == extra


def test_a_driver_that_fails_gives_none(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCuda(13000, status=999))
    assert cuda_extra() == ""


def test_without_a_driver_there_is_none():
    assert cuda_extra("no-such-libcuda.so.1") == ""
