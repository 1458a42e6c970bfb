"""What tests of cuswiglu.jax share: inputs, gradients, what XLA is given, what is refused."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cuswiglu.jax
from cuswiglu.jax import launch
from cuswiglu.jax.launch import FusedCall
from tests.helpers.calls import drawn_biases
from tests.helpers.host_arrays import BF16, draw

M, K, N, K_OUT = 24, 64, 96, 32
BIASES = {"b_gate": N, "b_up": N, "b_down": K_OUT}
WRAPPED = pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])


def inputs(m=M, major="k", **options):
    return tuple(map(jnp.asarray, draw(m, K, N, K_OUT, major, **options)))


def named(biases=(), dtype=BF16):
    """Arguments of mlp by name, with these biases."""
    operands = dict(zip(("x", "w_gate", "w_up", "w_down"), inputs(dtype=dtype), strict=True))
    added = drawn_biases(biases, BIASES, dtype)
    return operands | {name: jnp.asarray(bias) for name, bias in added.items()}


def in_fp32(activation):
    """The whole MLP or its first half without a rounding, as JAX's own functions say it."""
    gates = {"silu": jax.nn.silu, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}
    gates["identity"] = jax.nn.identity
    gates |= {"gelu": lambda g: jax.nn.gelu(g, approximate=False), "gelu_tanh": jax.nn.gelu}

    def computed(x, gate, up, down=None, b_gate=0, b_up=0, b_down=0):
        gate, up = x @ gate + b_gate, x @ up + b_up
        if activation in gates:
            hidden = gates[activation](gate) * up
        else:
            gate = gate.clip(max=activation.limit)
            up = up.clip(-activation.limit, activation.limit)
            hidden = gate * jax.nn.sigmoid(activation.alpha * gate) * (up + 1)
        return hidden if down is None else hidden @ down + b_down

    return computed


def assert_gradients(function, given, activation="silu", *, tolerance, wrap=jax.jit):
    """By every array `given`, of its dtype, and those of FP32 but for a relative error."""
    given = list(given)
    result = jax.eval_shape(function, *given)
    cotangent = jnp.asarray(draw(*result.shape, 8, dtype=result.dtype)[0])

    def gradients(function, cotangent, given):
        def loss(*given):
            return (function(*given) * cotangent).sum(dtype=jnp.float32)

        return jax.grad(loss, range(len(given)))(*given)

    found = wrap(lambda *given: gradients(function, cotangent, given))(*given)
    exact = [array.astype(jnp.float32) for array in given]
    with jax.default_matmul_precision("highest"):
        wanted = gradients(in_fp32(activation), cotangent.astype(jnp.float32), exact)
    for array, one, expected in zip(given, found, wanted, strict=True):
        assert (one.dtype, one.shape) == (array.dtype, expected.shape)
        error = np.linalg.norm(one.astype(jnp.float32) - expected) / np.linalg.norm(expected)
        assert error < tolerance


def lowered(function, *shapes, platform="cuda", dtype="bfloat16"):
    """What XLA is given for `function` of such arrays."""
    kinds = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return jax.jit(function).trace(*kinds).lower(lowering_platforms=(platform,)).as_text()


def called(text):
    """The descriptions of its custom calls."""
    found = re.findall(rf"custom_call @{launch.TARGET}.*?call = \"(.*?)\"\}}", text)
    return [FusedCall.parse(one.replace("\\22", '"').encode()) for one in found]


CHECKPOINT = (M, K), (N, K), (N, K), (K_OUT, N)


def refused(error, words, *, call=cuswiglu.jax.mlp, **changes):
    arguments = named() | changes
    options = ("weights", "variant", "activation")
    options = {name: arguments.pop(name) for name in options if name in arguments}
    with pytest.raises(error, match=re.escape(words)):
        jax.eval_shape(lambda **given: call(**given, **options), **arguments)
