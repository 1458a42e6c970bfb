"""One cell with NumPy in CuPy's place: the fixture `host`, and contenders that compute there."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from cuswiglu.bench.cells import Cell
from cuswiglu.bench.contenders import Contender, Runner, inputs
from cuswiglu.bench.run import measure
from cuswiglu.testing import timing

CELL = Cell("tiny", k=64, n=96, m=300)


class HostRandom:
    def __init__(self, seed):
        self._generator = np.random.default_rng(seed)

    def standard_normal(self, shape, dtype):
        return self._generator.standard_normal(shape, dtype=dtype)


@pytest.fixture
def host(monkeypatch):
    """NumPy as CuPy, a clock that gives every contender 7 us; host.lost breaks the device."""
    host = SimpleNamespace(lost=False, timed=[])

    def synchronize():
        if host.lost:
            raise RuntimeError("cudaErrorIllegalAddress")

    members = {name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    members["__name__"] = "numpy"
    members["random"] = SimpleNamespace(default_rng=HostRandom)
    members["cuda"] = SimpleNamespace(runtime=SimpleNamespace(deviceSynchronize=synchronize))
    members["get_default_memory_pool"] = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    cupy = SimpleNamespace(**members)

    def microseconds(contenders, sets, *, rounds, failed):
        host.timed = list(contenders)

        def time(name):
            try:
                contenders[name](0)
            except Exception as error:
                failed(name, error)
                return {}
            return {name: 7.0}

        return {key: value for name in contenders for key, value in time(name).items()}

    for module in (inputs, measure):
        monkeypatch.setattr(module, "cupy_module", lambda: cupy)
    monkeypatch.setattr(timing, "buffer_sets", lambda set_bytes: 2)
    monkeypatch.setattr(timing, "microseconds", microseconds)
    return host


def right(drawn):
    """SwiGLU in FP32, rounded once."""
    x, w2 = (array.astype(np.float32) for array in (drawn.x, drawn.w2[0]))
    gate, up = x @ w2[: CELL.n].T, x @ w2[CELL.n :].T
    return (gate / (1 + np.exp(-gate)) * up).astype(ml_dtypes.bfloat16)


def contender(name, output, timed=lambda number: None, **fields):
    def make(drawn):
        return Runner(lambda: output(drawn), timed, **fields)

    return Contender(name, make)


def measured(*contenders, whole_mlp=False):
    return measure.measure(CELL, contenders, seed=0, rounds=3, whole_mlp=whole_mlp)


def raises(error):
    def function(*arguments):
        raise error

    return function
