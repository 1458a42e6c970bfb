"""Contenders whose every call follows a kernel that writes x, as in a model.

That kernel lets nothing start before it ends. It is a contender too: its time is to be subtracted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import cupy_module
from . import _own
from .base import Contender, Runner
from .inputs import Inputs, poison

WRITER = "writer"

_THREADS = 256
_VECTOR = 16  # bytes

_SOURCE = r"""
extern "C" __global__ void cuswiglu_bench_write(
    const uint4* __restrict__ source, uint4* __restrict__ x, int vectors) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < vectors) x[at] = source[at];
}
"""


def name(contender: str) -> str:
    """Name a contender's calls behind the writer."""
    return f"{contender}-behind"


def behind(contender: Contender, room: str) -> Contender:
    """Put every call of a contender behind the writer.

    Parameters
    ----------
    contender : Contender
        One that is captured, and calls on `inputs.x`.
    room : str
        Attribute of the inputs that its calls write.
    """
    make = functools.partial(_behind, contender.make, room)
    return dataclasses.replace(contender, name=name(contender.name), make=make)


def writer() -> Contender:
    """Make the contender that writes x, and nothing else."""
    return Contender(WRITER, _writer, "x")


def _behind(make: Callable[[Inputs], Runner], room: str, inputs: Inputs) -> Runner:
    written = _unwritten(inputs)
    made, write = make(written), _write()
    call = made.timed
    assert callable(call)

    def both(number: int) -> None:
        write(inputs.x, written.x)
        call(number)

    return _own.runner(both, getattr(written, room), made.choice)


def _writer(inputs: Inputs) -> Runner:
    x, write = _unwritten(inputs).x, _write()
    return _own.runner(lambda number: write(inputs.x, x), x)


def _unwritten(inputs: Inputs) -> Inputs:
    """Take another x, of NaN: a call that does not wait for the writer is seen."""
    x = inputs.xp.empty_like(inputs.x)
    poison(x)
    return dataclasses.replace(inputs, x=x)


@functools.cache
def _write() -> Callable[[Any, Any], None]:
    """Compile a function that copies a contiguous array, on CuPy's current stream."""
    compiled = cupy_module().RawKernel(_SOURCE, "cuswiglu_bench_write")

    def launch(source: Any, x: Any) -> None:
        vectors = source.nbytes // _VECTOR
        compiled((-(-vectors // _THREADS),), (_THREADS,), (source, x, np.int32(vectors)))

    return launch
