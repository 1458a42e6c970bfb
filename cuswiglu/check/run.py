"""A check: case after case, each kept as soon as it is done."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import environment
from ..arrays import cupy_module
from ..bench.cells import Cell
from ..bench.contenders import Contender, Found, InapplicableError
from ..bench.contenders.inputs import Inputs
from ..bench.run.measure import error_text, release
from ..models import MLPWeights, iter_layers, layer_count
from ..models._smollm2 import smollm2_path
from ..models.shapes import SHAPES
from ..testing import numerics
from . import distributions
from .contenders import OTHERS
from .distributions import Case
from .report import CaseReport, Comparison, Element, Report, save

CPU_TOKENS = 64  # at most, in each case


def cases(cells: Sequence[Cell], *, quick: bool, on_gpu: bool) -> tuple[list[Case], dict[str, str]]:
    """List the cases of some cells and of SmolLM2; and why SmolLM2 is missing, if it is.

    `quick` takes its first, middle and last layer only; on the CPU there are fewer tokens.
    """
    found, missing = distributions.random_cases(cells), {}
    try:
        count = layer_count(smollm2_path())
        layers = [0, count // 2, count - 1] if quick else range(count)
        found += distributions.model_cases(layers, *SHAPES["smollm2-135m"])
    except (ImportError, FileNotFoundError) as error:
        missing["smollm2"] = str(error)
    return found if on_gpu else list(distributions.at_most(found, CPU_TOKENS)), missing


def begin(found: Found, missing: dict[str, str], seed: int) -> Report:
    """Make a report without cases, of this machine."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Report(seed, now, environment.collect().as_dict(), found.missing | missing)


def run(
    report: Report,
    wanted: Iterable[Case],
    contenders: Sequence[Contender],
    *,
    on_gpu: bool,
    path: Path | None = None,
    finished: Callable[[CaseReport], None] = lambda case: None,
) -> Report:
    """Check all contenders in each case.

    Parameters
    ----------
    report : Report
        From `begin`.
    wanted : iterable of Case
    contenders : sequence of Contender
    on_gpu : bool
        Whether arrays are on the current CUDA device.
    path : Path, optional
        Where the report is written after each case.
    finished : function
        Told of each case.
    """
    if path is not None:  # what cannot be written is told before the first case
        save(report, path)
    xp = cupy_module() if on_gpu else np
    model: list[MLPWeights] = []
    for case in wanted:
        if case.layer is not None and not model:
            model = list(iter_layers(smollm2_path()))
        if on_gpu:
            release()
        weights = None if case.layer is None else model[case.layer]
        row = check(xp, case, contenders, report.seed, weights)
        report = replace(report, cases=(*report.cases, row))
        if path is not None:
            save(report, path)
        finished(row)
    return report


def check(
    xp: Any, case: Case, contenders: Sequence[Contender], seed: int, weights: Any = None
) -> CaseReport:
    """Check all contenders in one case; an error only costs a contender this case."""
    inputs = distributions.draw(xp, case, seed, weights)
    with np.errstate(over="ignore"):  # exp(-gate) of a very negative gate, whose SiLU is 0
        expected = numerics.swiglu_reference(xp, inputs.x, *inputs.pairs[0])
        if xp is not np:  # contenders may work on streams of their own
            xp.cuda.runtime.deviceSynchronize()
        compared = {one.name: _compared(one, inputs, expected) for one in contenders}
    outcomes = {name: found for name, found in compared.items() if found is not None}
    worst = {
        name: outcome.measured.worst
        for name, outcome in outcomes.items()
        if outcome.ours and outcome.measured is not None
    }
    if not worst:
        return CaseReport(case, outcomes)
    name = max(worst, key=lambda one: worst[one].error)
    parts = _element(inputs, worst[name])
    element = Element.of(name, *(part if xp is np else xp.asnumpy(part) for part in parts))
    return CaseReport(case, outcomes, element)


def _compared(contender: Contender, inputs: Inputs, expected: Any) -> Comparison | None:
    """Compare a contender; None if the case is beyond its limits."""
    ours = contender.name not in OTHERS
    try:
        found = numerics.compare(inputs.xp, contender.make(inputs).output(), expected)
        x, gate, up = (part.astype(np.float64) for part in _element(inputs, found.worst))
    except InapplicableError:
        return None
    except Exception as error:
        return Comparison(ours, error=error_text(error))
    worst = replace(found.worst, gate=float(x @ gate), up=float(x @ up))
    return Comparison(ours, replace(found, worst=worst))


def _element(inputs: Inputs, place: numerics.Worst) -> tuple[Any, Any, Any]:
    """Select what one element is made of: a row of x, a column of gate and one of up."""
    gate, up = inputs.pairs[0]
    return inputs.x[place.row], gate[:, place.column], up[:, place.column]
