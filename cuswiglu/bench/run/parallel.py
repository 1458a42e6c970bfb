"""A cell measured on all of JAX's devices, with no CuPy, and no GPU where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...testing import numerics, timing
from ..cells import Cell
from ..contenders import Contender, Runner
from ..contenders._jax_parallel import UNSUMMED, ShardedInputs
from ..record import Outcome
from .measure import Measured, compared, error_text

TARGET_US = 20_000.0  # of a turn


def measure(
    cell: Cell,
    contenders: Sequence[Contender],
    *,
    seed: int,
    rounds: int,
    doing: Callable[[str], None] = lambda what: None,
) -> Measured:
    """Measure as `measure.measure` does, on all of JAX's devices; a call is a layer."""
    inputs = ShardedInputs(cell, seed)
    outcomes: dict[str, Outcome] = {}
    ready: dict[str, tuple[timing.Stopwatch, int]] = {}
    for contender in contenders:
        doing(f"checking {contender.name}")
        outcomes[contender.name], runner = _check(contender, inputs)
        if runner is not None:
            assert not callable(runner.timed)
            stopwatch = runner.timed.prepare(None, inputs.layers)
            ready[contender.name] = stopwatch, max(1, round(TARGET_US / stopwatch(1)))
    doing("timing")
    for one, microseconds in timing.in_turns(ready, inputs.layers, rounds).items():
        outcomes[one] = replace(outcomes[one], microseconds=round(microseconds, 3))
    return Measured(inputs.sets, outcomes)


def _check(contender: Contender, inputs: ShardedInputs) -> tuple[Outcome, Runner | None]:
    """Run once; what is summed is compared with FP64."""
    outcome = Outcome(captured=False)
    try:
        runner = contender.make(inputs)
        if contender.name.endswith(UNSUMMED):
            return outcome, runner
        _, _, expected = inputs.sample
        found = [numerics.compare(np, one, expected) for one in runner.output()]
    except Exception as error:
        return replace(outcome, error=error_text(error)), None
    outcome = compared(outcome, max(found, key=_error))
    return outcome, None if outcome.error else runner


def _error(accuracy: numerics.Accuracy) -> float:
    """Rank NaN as the largest."""
    return float(np.nan_to_num(accuracy.relative_error, nan=np.inf))
