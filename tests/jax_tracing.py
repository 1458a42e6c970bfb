"""What the tests of cuswiglu.jax share: inputs, what XLA is given, what is refused."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from calls import drawn_biases
from host_arrays import BF16, draw

import cuswiglu.jax
from cuswiglu.jax import launch
from cuswiglu.jax.launch import Description

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


def lowered(function, *shapes, platform="cuda", dtype="bfloat16"):
    """What XLA is given for `function` of such arrays."""
    kinds = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return jax.jit(function).trace(*kinds).lower(lowering_platforms=(platform,)).as_text()


def called(text):
    """The descriptions of its custom calls."""
    found = re.findall(rf"custom_call @{launch.TARGET}.*?call = \"(.*?)\"\}}", text)
    return [Description.parse(one.replace("\\22", '"').encode()) for one in found]


CHECKPOINT = (M, K), (N, K), (N, K), (K_OUT, N)


def refused(error, words, *, call=cuswiglu.jax.mlp, **changes):
    arguments = named() | changes
    options = ("weights", "variant", "activation")
    options = {name: arguments.pop(name) for name in options if name in arguments}
    with pytest.raises(error, match=re.escape(words)):
        jax.eval_shape(lambda **given: call(**given, **options), **arguments)
