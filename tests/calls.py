"""The three ways to call the library, and good arguments for each to spoil one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from host_arrays import draw, poisoned

import cuswiglu

FUNCTIONS = ["swiglu", "mlp", "GatedMLP"]
M, K, N, K_OUT = 4, 16, 24, 8


def good(function):
    """Arguments that are accepted, with a poisoned `out`."""
    x, w_gate, w_up, w_down = draw(M, K, N, K_OUT)
    out = poisoned(M, N if function == "swiglu" else K_OUT)
    return {"x": x, "w_gate": w_gate, "w_up": w_up, "w_down": w_down, "out": out}


def call(function, *, x, w_gate, w_up, w_down, out=None, variant="auto", stream=None, **more):
    """`more` are biases and an activation."""
    weights = (w_gate, w_up) if function == "swiglu" else (w_gate, w_up, w_down)
    if function == "GatedMLP":
        return cuswiglu.GatedMLP(*weights, variant=variant, **more)(x, out=out, stream=stream)
    work = getattr(cuswiglu, function)
    return work(x, *weights, out=out, variant=variant, stream=stream, **more)


def check_refused(function, error, words, **changes):
    """The call raises `error`, its message has all `words`, and `out` is still full of NaN."""
    arguments = good(function)
    poison = arguments["out"]
    arguments |= changes
    with pytest.raises(error) as caught:
        call(function, **arguments)
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert np.isnan(poison).all()
    given = changes.get("out")
    if isinstance(given, np.ndarray) and given.dtype == poison.dtype:
        assert np.isnan(given).all()
