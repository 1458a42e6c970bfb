"""One cell: every contender checked against FP64, then all timed in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...arrays import cupy_module
from ...common.dtypes import BFLOAT16
from ...testing import numerics, timing
from ..cells import Cell
from ..contenders import Contender, InapplicableError, Runner, _torch
from ..contenders.inputs import Inputs, draw, rotated
from ..record import Outcome


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
    whole_mlp: bool = False,
    layers: int = 0,
    sets: Callable[[Cell], int] = rotated,
    doing: Callable[[str], None] = lambda what: None,
) -> Measured:
    """Measure a cell on the current device.

    Parameters
    ----------
    cell : Cell
    contenders : sequence of Contender
    seed : int
        Seed of the inputs.
    rounds : int
        Turns, of which the median is taken.
    whole_mlp : bool
        Whether there are down-projection weights.
    layers : int
        Layers of a stack; 0 where calls are alone.
    sets : function
        Gives the number of sets of weights that calls of a cell rotate over, if they are alone.
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
        dtype: draw(cell, seed, whole_mlp=whole_mlp, layers=layers, sets=sets, dtype=dtype)
        for dtype in dtypes
    }
    count = drawn[BFLOAT16].sets
    kinds = {(contender.dtype, contender.computes) for contender in contenders}
    expected = {(dtype, kind): drawn[dtype].expected.of(kind) for dtype, kind in kinds}
    cupy_module().cuda.runtime.deviceSynchronize()
    outcomes: dict[str, Outcome] = {}
    runners: dict[str, Runner] = {}
    for contender in contenders:
        doing(f"checking {contender.name}")
        right = expected[contender.dtype, contender.computes]
        try:
            outcomes[contender.name], runner = _check(contender, drawn[contender.dtype], right)
        except InapplicableError:
            continue
        if runner is not None:
            runners[contender.name] = runner

    def failed(name: str, error: Exception) -> None:
        outcomes[name] = replace(outcomes[name], error=error_text(error))
        _still_there(name)

    doing("timing")
    times = timing.microseconds(
        {name: runner.timed for name, runner in runners.items()},
        count,
        rounds=rounds,
        failed=failed,
    )
    for name, microseconds in times.items():
        outcomes[name] = replace(outcomes[name], microseconds=round(microseconds, 3))
    return Measured(count, outcomes)


def _check(contender: Contender, inputs: Inputs, expected: Any) -> tuple[Outcome, Runner | None]:
    """Run once and compare with FP64; without a runner if it fails or is wrong.

    Raises
    ------
    InapplicableError
    """
    outcome = Outcome(family=contender.family)
    try:
        runner = contender.make(inputs)
        outcome = replace(outcome, captured=runner.captured, choice=_choice(contender, runner))
        found = inputs.sample(runner.output())
        accuracy = numerics.compare(inputs.xp, found, expected)
    except InapplicableError:
        raise
    except Exception as error:
        _still_there(contender.name)
        return replace(outcome, error=error_text(error)), None
    outcome = compared(outcome, accuracy)
    return outcome, None if outcome.error else runner


def compared(outcome: Outcome, accuracy: numerics.Accuracy) -> Outcome:
    """Add the accuracy of a right result, or the error of a wrong one."""
    relative = accuracy.relative_error
    if not relative <= numerics.MAX_UNFUSED_ERROR:
        return replace(outcome, error=f"wrong result: relative error {relative:.3g}")
    return replace(outcome, relative_error=relative, off=accuracy.off)


def _choice(contender: Contender, runner: Runner) -> str:
    return runner.choice if runner.choice != contender.name else ""


def _still_there(name: str) -> None:
    try:
        cupy_module().cuda.runtime.deviceSynchronize()
    except Exception as error:
        raise DeviceLostError(
            f"{name} crashed the GPU ({error}); finished cells are kept, --resume goes on from them"
        ) from error


def error_text(error: Exception) -> str:
    """Tell the kind of an error and the first line of what it says, for a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def release() -> None:
    """Give back the memory of the cell before."""
    gc.collect()
    _torch.release()
    cupy_module().get_default_memory_pool().free_all_blocks()
