"""Suite `random`: how well selection does at values of M that were drawn."""

from __future__ import annotations

import math
import random

from ...kernels.decode import MOST_TOKENS
from ...kernels.variant import DECODE_FAMILIES
from ..cells import MODELS, Cell, cell
from ..contenders import Contender, Found, _own, _quack, joined, limited
from ..report import columns, figures, summaries
from .base import Suite

#: Ranges of M, which follow each other, and how many values are drawn of each for every model.
RANGES = ((1, 128, 4), (129, 8192, 12))
#: Fewest tokens at which QuACK takes part: its kernels are for many, and it tunes in each cell.
MANY = 129


def cells(seed: int) -> tuple[Cell, ...]:
    """Draw values of M for each model, log-uniform within each range."""
    draw = random.Random(seed)

    def drawn(low: int, high: int, count: int) -> list[int]:
        found: set[int] = set()
        while len(found) < count:
            found.add(round(math.exp(draw.uniform(math.log(low), math.log(high)))))
        return sorted(found)

    return tuple(cell(model, m) for model in MODELS for part in RANGES for m in drawn(*part))


def ours() -> Found:
    """Find auto, the variants it may choose, those for few tokens where these are few, and bare."""
    found = _own.variants(decode=True)

    def of(*families: str) -> Found:
        return Found([one for one in found.contenders if one.family in families])

    return joined(
        [
            Found([Contender("auto", _own.swiglu)], found.missing),
            of("dual"),
            limited(of(*DECODE_FAMILIES), lambda cell: cell.m <= MOST_TOKENS),
            Found([Contender("bare", _own.bare, "product")]),
        ]
    )


def quack() -> Found:
    """Find QuACK, tuned and by default, for many tokens."""
    return limited(_quack.gate_up(), lambda cell: cell.m >= MANY)


SUITE = Suite(
    name="random",
    about="values of M that were drawn, beside our variants, cuBLAS's bare product and QuACK",
    cells=cells(seed=40),
    contenders=(ours, quack),
    columns=(
        *columns.CELL,
        columns.time("auto", "auto us", width=9),
        columns.kernel("auto"),
        columns.of_best_variant(),
        columns.speed("bare", "bare"),
        columns.speed("quack", *figures.QUACK),
        columns.of_peak(),
    ),
    legend="auto's time, then its speed against each contender",
    tables={"our variants": summaries.variants_table, "speed": summaries.auto_table},
    takes_kernels=True,
)
