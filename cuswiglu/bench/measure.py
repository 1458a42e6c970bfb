"""One cell: every contender checked against FP64, then all timed in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..arrays import cupy_module
from ..common.dtypes import BFLOAT16
from ..testing import timing
from . import fp64
from .cells import Cell
from .contenders import Contender, Runner, _torch
from .inputs import Inputs, draw
from .record import Outcome


class DeviceLostError(RuntimeError):
    """A contender left the GPU in a state that nothing in this process recovers from."""


@dataclass(frozen=True)
class Measured:
    """Outcome of each contender, and over how many sets of weights calls rotated."""

    sets: int
    outcomes: dict[str, Outcome]


def measure(
    cell: Cell,
    contenders: Sequence[Contender],
    *,
    seed: int,
    rounds: int,
    whole_mlp: bool,
    layers: int = 0,
    doing: Callable[[str], None] = lambda what: None,
) -> Measured:
    """Measure a cell on the current device.

    Parameters
    ----------
    cell : Cell
    contenders : sequence of Contender
    seed : int
        Of the inputs.
    rounds : int
        Turns, of which the median is taken.
    whole_mlp : bool
        Whether there are down-projection weights.
    layers : int
        Of a stack; 0 where calls are alone.
    doing : function
        Told what is being done.

    Raises
    ------
    DeviceLostError
        If a contender crashed the GPU; other errors only cost a contender this cell.
    """
    release()
    dtypes = dict.fromkeys([BFLOAT16, *(contender.dtype for contender in contenders)])
    drawn = {
        dtype: draw(cell, seed, whole_mlp=whole_mlp, layers=layers, dtype=dtype) for dtype in dtypes
    }
    sets = drawn[BFLOAT16].sets
    expected = {dtype: inputs.expected for dtype, inputs in drawn.items()}
    cupy_module().cuda.runtime.deviceSynchronize()
    outcomes: dict[str, Outcome] = {}
    runners: dict[str, Runner] = {}
    for contender in contenders:
        doing(f"checking {contender.name}")
        dtype = contender.dtype
        outcomes[contender.name], runner = _check(contender, drawn[dtype], expected[dtype])
        if runner is not None:
            runners[contender.name] = runner

    def failed(name: str, error: Exception) -> None:
        outcomes[name] = replace(outcomes[name], error=describe(error))
        _still_there(name)

    doing("timing")
    times = timing.microseconds(
        {name: runner.timed for name, runner in runners.items()},
        sets,
        rounds=rounds,
        failed=failed,
    )
    for name, microseconds in times.items():
        outcomes[name] = replace(outcomes[name], microseconds=round(microseconds, 3))
    return Measured(sets, outcomes)


def _check(
    contender: Contender, inputs: Inputs, expected: fp64.Expected
) -> tuple[Outcome, Runner | None]:
    """Run once and compare with FP64; without a runner if it fails or is wrong."""
    cupy = cupy_module()
    outcome = Outcome(family=contender.family)
    try:
        runner = contender.make(inputs)
        outcome = replace(outcome, captured=runner.captured, choice=_choice(contender, runner))
        found = inputs.sample(runner.output())
        relative, off = fp64.compare(cupy, found, expected.of(contender.computes))
    except Exception as error:
        _still_there(contender.name)
        return replace(outcome, error=describe(error)), None
    if not relative <= fp64.MAX_RELATIVE_ERROR:
        return replace(outcome, error=f"wrong result: relative error {relative:.3g}"), None
    return replace(outcome, relative_error=relative, off=off), runner


def _choice(contender: Contender, runner: Runner) -> str:
    return runner.choice if runner.choice != contender.name else ""


def _still_there(name: str) -> None:
    try:
        cupy_module().cuda.runtime.deviceSynchronize()
    except Exception as error:
        raise DeviceLostError(
            f"{name} crashed the GPU ({error}); finished cells are kept, --resume goes on from them"
        ) from error


def describe(error: Exception) -> str:
    """The kind of an error and the first line of what it says, for a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def release() -> None:
    """Give back the memory of the cell before."""
    gc.collect()
    _torch.release()
    cupy_module().get_default_memory_pool().free_all_blocks()
