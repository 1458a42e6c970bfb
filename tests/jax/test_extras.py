"""cuswiglu.jax: activations, biases and FP16, under every transformation, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from cuswiglu.common.device import Device
from cuswiglu.problem import activations
from tests.helpers import fp64
from tests.helpers.calls import in_fp64
from tests.helpers.compiled import GATED, pretend_compiled, without
from tests.helpers.fp64 import assert_close
from tests.helpers.host_arrays import FP16, bits, draw, full

jax = pytest.importorskip("jax", reason="cuswiglu.jax needs it")

import jax.numpy as jnp

import cuswiglu.jax
from tests.helpers.jax_tracing import (
    BIASES,
    CHECKPOINT,
    K_OUT,
    WRAPPED,
    K,
    M,
    N,
    assert_gradients,
    called,
    in_fp32,
    inputs,
    lowered,
    named,
    refused,
)

pytestmark = pytest.mark.usefixtures("jax_on_the_cpu")

BY_ACTIVATION = pytest.mark.parametrize("activation", fp64.ACTIVATIONS, ids=str)


@WRAPPED
@BY_ACTIVATION
def test_mlp_with_another_activation_is_fp64s(wrap, activation):
    given = inputs()
    found = wrap(lambda *given: cuswiglu.jax.mlp(*given, activation=activation))(*given)
    assert_close(found, fp64.mlp(*given, activation=activation))


@WRAPPED
@pytest.mark.parametrize(
    "names", [("b_gate",), ("b_up",), ("b_down",), ("b_gate", "b_up", "b_down")], ids="+".join
)
def test_mlp_with_biases_is_fp64s(wrap, names):
    given = named(names)
    found = wrap(lambda given: cuswiglu.jax.mlp(**given, activation="gelu"))(given)
    assert_close(found, in_fp64("mlp", given, "gelu"))


def test_swiglu_with_biases_is_fp64s():
    given = named(["b_gate", "b_up"])
    del given["w_down"]
    assert_close(cuswiglu.jax.swiglu(**given), in_fp64("swiglu", given))


@pytest.mark.parametrize("over", ["x", "b_up"])
def test_vmap_over_x_or_a_bias(over):
    given = named(BIASES)
    stacked = given | {over: jnp.stack([given[over], 2 * given[over]])}
    axes = {name: 0 if name == over else None for name in given}
    one = jax.vmap(lambda given: cuswiglu.jax.mlp(**given), ({**axes},))(stacked)
    for found, value in zip(one, stacked[over], strict=True):
        assert_close(found, in_fp64("mlp", given | {over: value}))


# Gradients


@BY_ACTIVATION
def test_gradients_of_activations_and_biases_are_those_of_fp32(activation):
    def ours(x, gate, up, down, *added):
        added = dict(zip(BIASES, added, strict=True))
        return cuswiglu.jax.mlp(x, gate, up, down, **added, activation=activation)

    assert_gradients(ours, named(BIASES).values(), activation, tolerance=2**-6)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gradients_of_large_gates_are_finite(activation):
    """Where exp(-gate) overflows."""
    x = full(np.array([[-1e4, 1e4]]).T)
    one = full(np.ones((1, 1)))
    gradient = jax.grad(
        lambda x: cuswiglu.jax.swiglu(x, one, one, activation=activation).sum(dtype=jnp.float32)
    )
    assert np.isfinite(np.asarray(gradient(jnp.asarray(x))).astype(np.float32)).all()


@BY_ACTIVATION
def test_second_derivatives_of_activations_are_those_of_fp32(activation):
    x, *pair = inputs()[:3]
    direction = jnp.asarray(draw(M, K, 8)[0], jnp.float32)

    def second(function, x):
        def slope(x):
            along = jax.grad(lambda x: function(x).sum(dtype=jnp.float32))(x)
            return (along * direction).sum(dtype=jnp.float32)

        return jax.grad(slope)(x).astype(jnp.float32)

    found = second(lambda x: cuswiglu.jax.swiglu(x, *pair, activation=activation), x)
    exact = [array.astype(jnp.float32) for array in (x, *pair)]
    with jax.default_matmul_precision("highest"):
        wanted = second(lambda x: in_fp32(activation)(x, *exact[1:]), exact[0])
    assert np.linalg.norm(found - wanted) < 2**-5 * np.linalg.norm(wanted)


# The custom call


@pytest.mark.usefixtures("hopper", "any_evenness")
@BY_ACTIVATION
def test_a_traced_call_is_launched_with_its_activation(activation):
    def call(x, gate, up):
        return cuswiglu.jax.swiglu(x, gate.T, up.T, activation=activation)

    (made,) = called(lowered(call, *CHECKPOINT[:3]))
    (problem,) = made.problems(Device("cuda"))
    assert problem.activation == activations.find(activation)


@pytest.mark.usefixtures("hopper", "any_evenness")
def test_the_call_says_the_activation_and_which_biases_there_are():
    clamped = cuswiglu.ClampedSwiGLU(0.5, 3)

    def call(x, gate, up, down, b_up, b_down):
        biases = {"b_up": b_up, "b_down": b_down}
        return cuswiglu.jax.mlp(x, gate.T, up.T, down.T, **biases, activation=clamped)

    (made,) = called(lowered(call, *CHECKPOINT, (N,), (K_OUT,)))
    assert (made.activation, made.alpha, made.limit) == ("clamped", 0.5, 3)
    assert made.biases == ("b_up", "b_down")


@pytest.mark.usefixtures("hopper")
def test_a_down_projection_for_cublas_has_its_bias_behind_the_call():
    def call(x, gate, up, down, b_gate, b_down):
        return cuswiglu.jax.mlp(x, gate.T, up.T, down.T, b_gate=b_gate, b_down=b_down)

    n, hidden = 13824, 5120
    shapes = (180, hidden), (n, hidden), (n, hidden), (hidden, n), (n,), (hidden,)
    (made,) = called(lowered(call, *shapes))
    assert (made.down, made.biases) == ("", ("b_gate",))


# FP16


@WRAPPED
@pytest.mark.parametrize("weights", ["k", "n"])
def test_mlp_of_fp16_is_fp64s_rounded_to_fp16(wrap, weights):
    given = {name: np.asarray(array) for name, array in named(BIASES, FP16).items()}
    options = {"activation": "gelu_tanh", "weights": weights}
    found = wrap(lambda given: cuswiglu.jax.mlp(**given, **options))(given)
    assert found.dtype == FP16
    assert_close(found, in_fp64("mlp", given, "gelu_tanh"))


def test_the_intermediate_is_rounded_to_fp16_though_xla_could_keep_it():
    """A unit whose intermediate rounds up by much: 1 + 2^-11 + 2^-13 is 1 + 2^-10 in FP16."""
    x = jnp.asarray([[1, 2**-11 + 2**-13]], "float16")
    gate = jnp.asarray([[64.0], [0]], "float16")
    up = jnp.asarray([[2**-6], [2**-6]], "float16")
    found = jax.jit(cuswiglu.jax.mlp)(x, gate, up, jnp.full((1, 1), 512, "float16"))
    assert float(found[0, 0]) == 512 * (1 + 2**-10)


def test_a_subnormal_intermediate_of_fp16_is_kept():
    one = jnp.ones((1, 1), "float16")
    found = jax.jit(cuswiglu.jax.mlp)(one, 64 * one, one * 2.0**-23, 1024 * one)
    assert float(found[0, 0]) == 2.0**-7


def test_vmap_over_x_of_fp16_gives_the_same_bits():
    x, *weights = inputs(dtype=FP16)
    found = jax.vmap(lambda x: cuswiglu.jax.mlp(x, *weights))(x.reshape(4, 6, K))
    assert (bits(found) == bits(cuswiglu.jax.mlp(x.reshape(4, 6, K), *weights))).all()


def test_gradients_of_fp16_are_those_of_fp32_rounded_to_fp16():
    assert_gradients(cuswiglu.jax.mlp, inputs(dtype=FP16), tolerance=2**-9)


def test_no_tokens_of_fp16_give_fp16():
    x, *weights = inputs(dtype=FP16)
    assert cuswiglu.jax.mlp(x[:0], *weights).dtype == FP16


@pytest.mark.usefixtures("hopper", "any_evenness")
def test_the_call_says_the_dtype():
    def call(x, gate, up, down):
        return cuswiglu.jax.mlp(x, gate.T, up.T, down.T)

    for dtype in ("float16", "bfloat16"):
        (made,) = called(lowered(call, *CHECKPOINT, dtype=dtype))
        assert (made.dtype, made.down != "") == (dtype, True)


@pytest.mark.usefixtures("hopper")
def test_kernels_that_know_bf16_only_leave_fp16_to_plain_jax(monkeypatch):
    pretend_compiled(monkeypatch, *(without(kernel, "float16") for kernel in GATED))
    with pytest.warns(UserWarning, match="computes bfloat16 only, got float16"):
        text = lowered(
            lambda x, gate, up: cuswiglu.jax.swiglu(x, gate.T, up.T),
            *CHECKPOINT[:3],
            dtype="float16",
        )
    assert called(text) == []


# Refusals, while JAX traces


@pytest.mark.parametrize("name", ["x", "w_up", "w_down", "b_gate", "b_down"])
def test_an_array_of_the_other_dtype_is_refused(name):
    given = named(BIASES)
    given[name] = given[name].astype("float16")
    refused(TypeError, "must have the same dtype, got", **given)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("b_gate", (N + 8,), f"b_gate must have shape ({N},)"),
        ("b_up", (1, N), f"b_up must have shape ({N},)"),
        ("b_down", (N,), f"b_down must have shape ({K_OUT},)"),
    ],
)
def test_a_bias_that_does_not_fit_is_refused(name, shape, words):
    refused(ValueError, words, **{name: jnp.zeros(shape, "bfloat16")})


@pytest.mark.parametrize("name", ["b_gate", "b_up", "b_down"])
def test_a_bias_of_another_dtype_is_refused(name):
    bias = jnp.zeros((N,), "float32")
    refused(TypeError, f"{name} must have dtype bfloat16 or float16, got float32", **{name: bias})


def test_an_unknown_activation_is_refused():
    refused(ValueError, "activation must be 'silu', 'gelu'", activation="swish")
    refused(TypeError, "activation must be 'silu', 'gelu'", activation=jnp.tanh)
