"""A GPU that is not there: see fake_driver.py."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import pytest


@pytest.fixture
def gpu(monkeypatch):
    """An H200 behind a recorded driver, and a process that has not used it yet.

    gpu.driver is the `FakeDriver`, gpu.cupy the `HostCuPy`; the portable path is recorded in
    gpu.portable as (function, arrays, stream).
    """
    import fake_driver

    from cuswiglu import arrays, driver, plan
    from cuswiglu.backends import cublas

    host_cupy = fake_driver.HostCuPy()
    fake = fake_driver.FakeDriver(current_device=host_cupy.device)
    portable = []

    def record(function):
        def call(*operands):
            stream = host_cupy.cuda.get_current_stream().ptr
            portable.append((function, operands, stream))

        return call

    monkeypatch.setattr(arrays, "cupy_module", lambda: host_cupy)
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    monkeypatch.setattr(driver, "_drivers", [])
    monkeypatch.setattr(plan, "_plans", OrderedDict())
    monkeypatch.setattr(plan, "_devices", {})
    monkeypatch.setattr(cublas, "swiglu", record("swiglu"))
    monkeypatch.setattr(cublas, "matmul", record("matmul"))
    return SimpleNamespace(driver=fake, cupy=host_cupy, portable=portable)
