"""Suite `mlp`: the whole MLP of Qwen-2.5's models."""

from __future__ import annotations

import functools

from ..cells import MODELS, TOKENS, cell
from ..contenders import _own, _torch
from ..report import columns, plots, summaries
from ..run.measure import measure
from ..run.run import Method
from .base import Suite

SUITE = Suite(
    name="mlp",
    about="the whole MLP, beside torch and cuBLAS's products",
    cells=tuple(cell(model, m) for model in MODELS for m in TOKENS),
    contenders=(_own.mlp, _torch.mlp, _torch.linears),
    columns=(
        *columns.CELL,
        columns.time("auto", "auto us", width=9),
        columns.kernel("auto"),
        columns.speed("2 gemms", "two-gemms"),
        columns.speed("fused", "fused"),
        columns.speed("eager", "torch-eager"),
        columns.speed("compile", "torch-compile"),
        columns.of_peak(whole_mlp=True),
    ),
    legend="auto's time, then its speed against each contender",
    tables={"speed": summaries.auto_table},
    plots={
        "speedup": functools.partial(plots.speedup, what="whole MLP"),
        "utilisation": functools.partial(plots.utilisation, whole_mlp=True),
    },
    method=Method(measure=functools.partial(measure, whole_mlp=True)),
)
