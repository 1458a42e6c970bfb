"""Suite `activations`: what other activations, biases and FP16 take beside SiLU in BF16."""

from __future__ import annotations

import functools

from ...common.dtypes import FLOAT16
from ..cells import TOKENS, cell
from ..contenders import Contender, Found, _own
from ..contenders.expected import ACTIVATIONS
from ..report import columns
from .base import Suite

#: Contenders whose time over `silu`'s is judged; `float16`'s is shown alone, as other bits take
#: other power.
COSTS = (*ACTIVATIONS, "biased")


def ours() -> Found:
    """Find SiLU, each other activation, SiLU with biases, and SiLU in FP16; all by auto."""
    return Found(
        [
            Contender("silu", _own.swiglu),
            *(
                Contender(name, functools.partial(_own.swiglu, activation=activation), name)
                for name, activation in ACTIVATIONS.items()
            ),
            Contender("biased", functools.partial(_own.swiglu, biased=True), "biased"),
            Contender("float16", _own.swiglu, dtype=FLOAT16),
        ]
    )


SUITE = Suite(
    name="activations",
    about="what other activations, biases and FP16 take beside SiLU",
    cells=tuple(cell("7b", m) for m in TOKENS),
    contenders=(ours,),
    columns=(
        *columns.CELL,
        columns.time("silu", "silu us", width=9),
        columns.kernel("silu"),
        *(columns.speed(name, name, of="silu") for name in (*COSTS, "float16")),
    ),
    legend=(
        "microseconds of SiLU in BF16 without biases, and the time of each other call over it; "
        "float16 is SiLU too"
    ),
)
