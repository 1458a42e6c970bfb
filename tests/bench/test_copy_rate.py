"""The rate of a copy: the fastest at its best, read plus written; what does not copy is refused."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from cuswiglu.bench.run import copy_rate
from cuswiglu.testing import timing

BYTES = 1 << 16


def stopwatch(*microseconds):
    """One that gives these times of a copy, in turn, and the last one from then on."""
    times = list(microseconds)

    def elapsed(replays):
        return replays * (times.pop(0) if len(times) > 1 else times[0])

    return elapsed


def test_bytes_are_counted_as_read_and_as_written():
    assert copy_rate.fastest([stopwatch(500.0)], 10**9) == pytest.approx(2 * 10**9 / 500e-6 / 1e12)


def test_the_fastest_copy_at_its_best_counts():
    slow, uneven = stopwatch(600.0), stopwatch(900.0, 700.0, 400.0, 700.0)
    assert copy_rate.fastest([slow, uneven], 10**9) == pytest.approx(5.0)


def test_warming_up_does_not_count():
    assert copy_rate.fastest([stopwatch(100.0, 500.0)], 10**9) == pytest.approx(4.0)


class Array(np.ndarray):
    """Of NumPy, with the address where CuPy has it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Gpu:
    """Copies on the host, which take so many microseconds of a clock of its own.

    `skipped` vectors of 16 bytes are left out by kernels.
    """

    def __init__(self, memcpy_us, kernel_us, skipped=0):
        self.now, self.kernels, self.streams = 0.0, [], []
        gpu = self

        class Stream:
            ptr = 77

            def __init__(self, non_blocking):
                assert non_blocking

            def __enter__(self):
                gpu.streams.append(self)

            def __exit__(self, *exception):
                gpu.streams.pop()

        class Event:
            def record(self, stream):
                self.when = gpu.now

            def synchronize(self):
                pass

        def memcpy(target, source, size, kind, stream):
            assert (kind, stream) == ("device to device", 77)
            ctypes.memmove(target, source, size)
            gpu.now += memcpy_us

        def kernel(source, name, options):
            defined = dict(option.removeprefix("-D").split("=") for option in options)
            threads, vectors = int(defined["THREADS"]), int(defined["VECTORS"])
            assert f"{name}(" in source
            gpu.kernels.append(vectors)

            def launch(grid, block, arguments):
                assert (block, len(gpu.streams)) == ((threads,), 1)
                source, target = arguments
                size = 16 * (grid[0] * threads * vectors - skipped)
                ctypes.memmove(target.data.ptr, source.data.ptr, size)
                gpu.now += kernel_us[vectors]

            return launch

        self.cupy = SimpleNamespace(
            arange=lambda count, dtype: np.arange(count, dtype=dtype).view(Array),
            empty_like=np.empty_like,
            RawKernel=kernel,
            cuda=SimpleNamespace(
                Stream=Stream,
                Event=Event,
                get_elapsed_time=lambda start, stop: (stop.when - start.when) / 1e3,
                runtime=SimpleNamespace(
                    memcpyAsync=memcpy, memcpyDeviceToDevice="device to device"
                ),
            ),
        )


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(copy_rate, "BYTES", BYTES)

    def on(gpu):
        for module in (copy_rate, timing):
            monkeypatch.setattr(module, "cupy_module", lambda: gpu.cupy)
        return copy_rate.measured()

    return on


@pytest.mark.parametrize(
    ("memcpy", "few", "many"), [(0.02, 0.04, 0.08), (0.08, 0.02, 0.04), (0.08, 0.04, 0.02)]
)
def test_memcpy_and_kernels_compete(measured, memcpy, few, many):
    gpu = Gpu(memcpy, dict(zip(copy_rate.VECTORS, (few, many), strict=True)))
    assert measured(gpu) == pytest.approx(2 * BYTES / 0.02e-6 / 1e12, abs=1e-3)
    assert gpu.kernels == list(copy_rate.VECTORS)


def test_a_kernel_that_leaves_something_out_is_refused(measured):
    with pytest.raises(RuntimeError, match="differs from what was copied"):
        measured(Gpu(1.0, dict.fromkeys(copy_rate.VECTORS, 1.0), skipped=1))


def test_blocks_divide_what_is_copied():
    assert all(copy_rate.BYTES % (16 * copy_rate.THREADS * one) == 0 for one in copy_rate.VECTORS)
