"""A process without tuned tables; a GPU that is not there: see fake_driver.py, host_cupy.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import settings

# `pytest --hypothesis-profile=long`: hours of whatever can be drawn; with `-m gpu`, minutes.
settings.register_profile("long", max_examples=20_000, deadline=None, print_blob=True)


@pytest.fixture(scope="session")
def _nowhere(tmp_path_factory):
    return tmp_path_factory.mktemp("nowhere")


@pytest.fixture(autouse=True)
def _no_tuned_tables(request, monkeypatch, _nowhere):
    """Neither the package's table nor one of whoever runs the tests: selection estimates."""
    from cuswiglu.selection import tuned

    if request.node.get_closest_marker("gpu"):
        yield
        return
    monkeypatch.setattr(tuned, "PACKAGED", _nowhere / "packaged.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(_nowhere))
    _forget(tuned)
    yield
    _forget(tuned)


def _forget(tuned):
    """As a new process: tables are read, and warned of, again."""
    tuned.tables.cache_clear()
    tuned._warn_old.cache_clear()


@pytest.fixture
def fork(monkeypatch):
    """fork(): from then on this is a forked child, as drivers see it."""
    from cuswiglu.runtime.driver import _Process

    return lambda: monkeypatch.setattr(_Process, "forks", _Process.forks + 1)


@pytest.fixture
def tables(monkeypatch, tmp_path):
    """Write the tuned tables of a new process: tables(user=..., packaged=...) gives the paths."""
    from cuswiglu.selection import tuned

    monkeypatch.setattr(tuned, "PACKAGED", tmp_path / "package" / "tuned.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write(user=None, packaged=None):
        paths = SimpleNamespace(user=tuned.cache_path(), packaged=tuned.PACKAGED)
        for path, table in ((paths.user, user), (paths.packaged, packaged)):
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            if table is not None:
                path.write_text(table if isinstance(table, str) else tuned.serialise(table))
        _forget(tuned)
        return paths

    return write


@pytest.fixture
def any_evenness(monkeypatch):
    """Products of one weight take our kernels, also where cuBLAS would be faster."""
    from cuswiglu.selection import portable_cost, select

    monkeypatch.setattr(select, "EVEN_ENOUGH", 0)
    monkeypatch.setattr(portable_cost, "LAUNCH_US", float("inf"))


@pytest.fixture
def jax_on_the_cpu(monkeypatch):
    """Whatever else JAX sees here."""
    import jax

    from cuswiglu.jax import operation

    monkeypatch.setattr(operation, "hopper", lambda: None)
    operation.transformable.cache_clear()
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield
    operation.transformable.cache_clear()


@pytest.fixture
def hopper(monkeypatch, jax_on_the_cpu):
    """While JAX traces, it sees an H200."""
    from cuswiglu.jax import operation
    from tests.helpers.tables import H200

    monkeypatch.setattr(operation, "hopper", lambda: H200)


@pytest.fixture
def portable(monkeypatch):
    """The portable path's module, its own code with NumPy in CuPy's and cuBLAS's place."""
    import functools

    import numpy as np

    from cuswiglu.backends import cublas, reference
    from tests.helpers.host_elementwise import ElementwiseKernel

    fake = SimpleNamespace(empty=np.empty, float32=np.float32, ElementwiseKernel=ElementwiseKernel)
    product = cublas.matmul

    def matmul(x, weight, out, workspace=None, *, biases=()):
        if any(bias is not None for bias in biases):
            return product(x, weight, out, workspace, biases=biases)
        return reference.matmul(x, weight, out)

    monkeypatch.setattr(cublas, "cupy_module", lambda: fake)
    monkeypatch.setattr(cublas, "matmul", matmul)
    for made in (cublas.activation_kernel, cublas.bias_kernel):
        monkeypatch.setattr(cublas, made.__name__, functools.cache(made.__wrapped__))
    return cublas


@pytest.fixture
def gpu(monkeypatch):
    """An H200 behind a recorded driver, and a process that has not used it yet.

    gpu.driver is the `FakeDriver`, gpu.cupy the `HostCuPy`; the portable path is recorded in
    gpu.portable as (function, arrays, stream), and its options in gpu.options.
    """
    from cuswiglu import arrays
    from cuswiglu.api import dispatch
    from cuswiglu.arrays import allocate
    from cuswiglu.backends import cublas
    from cuswiglu.runtime import driver
    from tests.helpers import fake_driver
    from tests.helpers import host_cupy as host

    host_cupy = host.HostCuPy()
    fake = host_cupy.driver = fake_driver.FakeDriver(current_device=host_cupy.device)
    portable, options = [], []

    def record(function):
        def call(*operands, **named):
            options.append(named)
            stream = host_cupy.cuda.get_current_stream().ptr
            portable.append((function, operands, stream))

        return call

    for room in (arrays, allocate):
        monkeypatch.setattr(room, "cupy_module", lambda: host_cupy)
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    monkeypatch.setattr(driver, "_drivers", [])
    monkeypatch.setattr(cublas, "swiglu", record("swiglu"))
    monkeypatch.setattr(cublas, "matmul", record("matmul"))
    dispatch.clear_caches()
    yield SimpleNamespace(driver=fake, cupy=host_cupy, portable=portable, options=options)
    dispatch.clear_caches()  # nothing of this driver's is left for the next test
