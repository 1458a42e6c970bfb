"""Suite `decode`: gate and up, and the whole MLP, for few tokens, beside a copy in GPU memory.

Calls of ours load weights ahead, as those of a `GatedMLP` do from the second one on.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ... import problem
from ...api.gated_mlp import GatedMLP
from ...runtime import plan
from ...selection import select
from ..cells import MODELS, cell
from ..contenders import Contender, Found, Runner, _own, _torch
from ..contenders.inputs import Inputs
from ..record import CellRecord, Record, Session
from ..report import columns, figures, plots, summaries
from ..run import copy_rate, machine
from ..run.measure import measure
from ..run.run import Method
from .base import Suite

FEW_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GATE_UP, BARE, MLP, MLP_BATCH = "gate-up", "bare", "mlp", "mlp-batch"


def ours() -> Found:
    """Find gate and up, the MLP with and without batch invariance, and both unfused."""
    return Found(
        [
            Contender(GATE_UP, _gate_up),
            Contender(BARE, _own.bare, "product"),
            Contender(MLP, functools.partial(_mlp, None), "mlp"),
            Contender(MLP_BATCH, functools.partial(_mlp, "batch"), "mlp"),
            Contender("fused", _own.fused, "mlp"),
        ]
    )


def _gate_up(inputs: Inputs) -> Runner:
    """Launch the first of the two kernels of a `GatedMLP`'s call."""

    def make(asked: problem.Problem) -> plan.Plan:
        choice = select.select(asked, plan.device_info(asked.device.index))
        if choice.kernel is None:
            return plan.plan_for(asked)
        return plan.kernel_plan(asked, choice, weights_ahead=True)

    return _own.by_plan(inputs, make)


def _mlp(deterministic: str | None, inputs: Inputs) -> Runner:
    """Call an object for each set of weights, once before what is checked and timed."""
    x, out = inputs.x, inputs.result
    layers = [GatedMLP(*weights, deterministic=deterministic) for weights in inputs.layers]
    for layer in layers:
        layer(x, out=out)
    return _own.runner(lambda number: layers[number](x, out=out), out)


def session(gpu: str) -> Session:
    """Look at the machine, then measure how fast it copies."""
    found = machine.session(gpu)
    return replace(found, copy_tbs=copy_rate.measured())


def tbs(row: CellRecord) -> float | None:
    """Compute the TB/s at which gate and up's weights are read: X and the result do not count."""
    time = row.us(GATE_UP)
    return row.cell.gate_up_bytes / time / 1e6 if time else None


def share(record: Record, row: CellRecord) -> float | None:
    """Compute `tbs` over the copy's, read plus written, in the session of the cell."""
    rate = tbs(row)
    copy = record.sessions[row.session].copy_tbs if row.session < len(record.sessions) else None
    return rate / copy if rate and copy else None


def shares(record: Record) -> list[figures.Ratio]:
    """Collect `share` of every cell that has one."""
    return figures.collected(record, lambda row: share(record, row))


def copy_share(record: Record) -> Any:
    """Draw the bandwidth of gate and up over a copy's, by M, a line for each model."""
    title = "Few tokens: bandwidth of gate and up, of a copy's in the same run"
    return plots.by_tokens(record, title, "share of the copy's TB/s", shares(record))


def bare_speed(record: Record) -> Any:
    """Draw the speed of gate and up against cuBLAS's bare product, by M, a line for each model."""
    title = "Few tokens: gate and up fused against cuBLAS's bare GEMM"
    ratios = figures.speed(record, GATE_UP, [BARE])
    return plots.by_tokens(record, title, "speed of the bare GEMM = 1", ratios)


SUITE = Suite(
    name="decode",
    about="gate and up and the whole MLP for few tokens, beside a copy in GPU memory",
    cells=tuple(cell(model, m) for model in MODELS for m in FEW_TOKENS),
    contenders=(ours, _torch.mlp),
    columns=(
        *columns.CELL,
        columns.time(GATE_UP, "gate-up us", "{:.2f}"),
        columns.kernel(GATE_UP, 27),
        columns.figure("TB/s", lambda record, row: tbs(row), "{:.2f}"),
        columns.figure("of copy", share, "{:.1%}"),
        columns.speed("bare", BARE, of=GATE_UP),
        columns.time(MLP, "mlp us", "{:.2f}", width=9),
        columns.speed("best other", *figures.UNFUSED_MLP, of=MLP),
        columns.times("batch/mlp", MLP_BATCH, MLP),
    ),
    legend=(
        "gate and up, from CUDA graphs: TB/s of their weights, its share of a copy's, speed "
        "against cuBLAS's bare product; whole MLP: speed against the best of "
        f"{', '.join(figures.UNFUSED_MLP)}; time with deterministic='batch' over without"
    ),
    tables={
        "gate and up": lambda record: summaries.speed_table(record, GATE_UP, BARE),
        "whole MLP": lambda record: summaries.speed_table(record, MLP, *figures.UNFUSED_MLP),
    },
    plots={"bandwidth": copy_share, "bare": bare_speed},
    method=Method(measure=functools.partial(measure, whole_mlp=True), session=session),
)
