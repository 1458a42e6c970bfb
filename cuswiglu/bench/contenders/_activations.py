"""Who takes part in the suite `activations`: gate and up by auto, as calls may ask for them."""

from __future__ import annotations

import functools

from ...common.dtypes import FLOAT16
from ..fp64 import ACTIVATIONS
from . import _own
from .base import Contender, Found


def ours() -> Found:
    """SiLU, each other activation, SiLU with biases, and SiLU in FP16."""
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
