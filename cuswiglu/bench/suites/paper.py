"""Suite `paper`: gate and up of Qwen-2.5's models, everybody beside every kernel of ours."""

from __future__ import annotations

import functools

from ..cells import MODELS, TOKENS, cell
from ..contenders import _jax, _own, _quack, _torch, _triton
from ..report import columns, figures, plots, summaries
from .base import Suite

SUITE = Suite(
    name="paper",
    about="gate and up, beside cuBLAS's bare product, torch, JAX, QuACK and flash-swiglu-mlp",
    cells=tuple(cell(model, m) for model in MODELS for m in TOKENS),
    contenders=(_own.gate_up, _torch.gate_up, _jax.gate_up, _quack.gate_up, _triton.gate_up),
    columns=(
        *columns.CELL,
        columns.time("auto", "auto us", width=9),
        columns.kernel("auto"),
        columns.of_best_variant(),
        columns.speed("bare", "bare"),
        columns.speed("quack", *figures.QUACK),
        columns.speed("eager", "torch-eager"),
        columns.speed("compile", "torch-compile"),
        columns.speed("jax", "jax"),
        columns.speed("triton", "flash-swiglu-mlp"),
        columns.of_peak(),
    ),
    legend="auto's time, then its speed against each contender",
    tables={"our variants": summaries.variants_table, "speed": summaries.auto_table},
    plots={
        "speedup": functools.partial(plots.speedup, what="gate and up"),
        "utilisation": plots.utilisation,
        "roofline": plots.roofline,
        "winners": plots.winners,
    },
    remarks={"jax": "jax is not captured in a CUDA graph: its times hold the host's dispatch"},
    takes_kernels=True,
)
