"""A small cell's inputs on the GPU that is not there, and a suite's contender of a name."""

from __future__ import annotations

from contextlib import contextmanager

from cuswiglu.bench.cells import Cell
from cuswiglu.bench.contenders import inputs
from tests.helpers.device_arrays import device_poisoned
from tests.helpers.host_arrays import BF16

FEW_ROWS = Cell("tiny", k=64, n=96, m=4)
SETS, STREAM = 2, 77


@contextmanager
def on_gpu(gpu, monkeypatch, *modules):
    """These modules of contenders, and inputs, see the GPU; device 0 and `STREAM` are current."""
    for module in (inputs, *modules):
        monkeypatch.setattr(module, "cupy_module", lambda: gpu.cupy)
    with gpu.cupy.cuda.Device(0), gpu.cupy.cuda.Stream(STREAM):
        yield


def poisoned_inputs(cell=FEW_ROWS, dtype=BF16):
    """Inputs of a cell, with `SETS` sets of weights and biases, full of NaN."""

    def sets(*shape):
        return tuple(device_poisoned(*shape, dtype=dtype) for _ in range(SETS))

    x = device_poisoned(cell.m, cell.k, dtype=dtype)
    w2, w_down = sets(2 * cell.n, cell.k), sets(cell.k, cell.n)
    return inputs.Inputs(cell, x, w2, w_down, biases=sets(2, cell.n), dtype=dtype)


def named(name, suite):
    """The contender of this name."""
    (found,) = (one for one in suite.contenders if one.name == name)
    return found
