"""The three ways to call the library: good arguments, to spoil one at a time, and their results."""

from __future__ import annotations

import numpy as np
import pytest

import cuswiglu
from tests.helpers import fp64
from tests.helpers.host_arrays import BF16, draw, full, poisoned

FUNCTIONS = ["swiglu", "mlp", "GatedMLP"]
M, K, N, K_OUT = 4, 16, 24, 8
#: The biases, and how many elements they have.
BIASES = {"b_gate": N, "b_up": N, "b_down": K_OUT}


def biases_of(function):
    """Names of the biases that a function takes."""
    return [name for name in BIASES if (function, name) != ("swiglu", "b_down")]


def drawn_biases(names, sizes=BIASES, dtype=BF16):
    """Random ones, by name."""
    rng = np.random.default_rng(5)
    return {name: full(rng.standard_normal(sizes[name]), dtype=dtype) for name in names}


def good(function, dtype=BF16, *, biased=False):
    """Arguments that are accepted, with a poisoned `out`, and with all biases or none."""
    x, w_gate, w_up, w_down = draw(M, K, N, K_OUT, dtype=dtype)
    out = poisoned(M, N if function == "swiglu" else K_OUT, dtype=dtype)
    biases = drawn_biases(biases_of(function), dtype=dtype) if biased else {}
    return {"x": x, "w_gate": w_gate, "w_up": w_up, "w_down": w_down, "out": out, **biases}


def in_fp64(function, arguments, activation="silu"):
    """What these arguments, biases among them, give in FP64; `out` does not count."""
    given = {name.removeprefix("w_"): array for name, array in arguments.items() if name != "out"}
    if function == "swiglu":
        given.pop("down", None)
        return fp64.swiglu(**given, activation=activation)
    return fp64.mlp(**given, activation=activation)


def call(function, *, x, w_gate, w_up, w_down, out=None, variant="auto", stream=None, **more):
    """`more` are biases and an activation."""
    weights = (w_gate, w_up) if function == "swiglu" else (w_gate, w_up, w_down)
    if function == "GatedMLP":
        return cuswiglu.GatedMLP(*weights, variant=variant, **more)(x, out=out, stream=stream)
    work = getattr(cuswiglu, function)
    return work(x, *weights, out=out, variant=variant, stream=stream, **more)


def layer_of(arguments, **options):
    """A GatedMLP of the weights and the biases among these arguments."""
    weights = [arguments[name] for name in ("w_gate", "w_up", "w_down")]
    biases = {name: arguments[name] for name in BIASES if name in arguments}
    return cuswiglu.GatedMLP(*weights, **biases, **options)


def repeated(function, arguments):
    """work(**changes): the function, or one layer, of these arguments but for changes."""
    if function != "GatedMLP":
        return lambda **changes: call(function, **arguments | changes)
    layer = layer_of(arguments)
    own = {name: arguments[name] for name in ("x", "out")}
    return lambda **changes: layer(**own | changes)


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
