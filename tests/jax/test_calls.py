"""swiglu and mlp for JAX: on the CPU against FP64, under every transformation; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.compiled import DECODE_GATED, DECODE_PLAIN, GATED, PLAIN
from tests.helpers.fp64 import assert_close, mlp, swiglu
from tests.helpers.host_arrays import BF16, bits, draw

jax = pytest.importorskip("jax", reason="cuswiglu.jax needs it")

import jax.numpy as jnp

import cuswiglu.jax
from tests.helpers.jax_tracing import (
    CHECKPOINT,
    K_OUT,
    WRAPPED,
    K,
    M,
    N,
    assert_gradients,
    called,
    inputs,
    lowered,
    refused,
)

pytestmark = pytest.mark.usefixtures("jax_on_the_cpu")
ALONG_N = [kernel for kernel in GATED if "n" in kernel.layouts]


# Values


@WRAPPED
@pytest.mark.parametrize("weights", ["k", "n"])
def test_swiglu_is_fp64s_rounded(wrap, weights):
    x, gate, up, _ = inputs()
    found = wrap(lambda *given: cuswiglu.jax.swiglu(*given, weights=weights))(x, gate, up)
    assert found.dtype == BF16
    assert_close(found, swiglu(x, gate, up))


@WRAPPED
@pytest.mark.parametrize("weights", ["k", "n"])
def test_mlp_is_fp64s_with_the_intermediate_rounded(wrap, weights):
    given = inputs()
    found = wrap(lambda *given: cuswiglu.jax.mlp(*given, weights=weights))(*given)
    assert found.dtype == BF16
    assert_close(found, mlp(*given))


def test_the_intermediate_is_rounded_though_xla_could_keep_it():
    """A unit whose intermediate rounds up by much: 1 + 2^-8 + 2^-12 is 1 + 2^-7 in BF16."""
    x = jnp.asarray([[1, 2**-8 + 2**-12]], "bfloat16")
    gate = jnp.asarray([[64.0], [0]], "bfloat16")  # silu(64) is 64
    up = jnp.asarray([[2**-6], [2**-6]], "bfloat16")
    found = jax.jit(cuswiglu.jax.mlp)(x, gate, up, jnp.full((1, 1), 256, "bfloat16"))
    assert float(found[0, 0]) == 256 * (1 + 2**-7)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3, 4), (2, 0)])
def test_leading_dimensions_are_kept(leading):
    count = int(np.prod(leading))
    x, gate, up, down = inputs(max(count, 1))
    found = cuswiglu.jax.mlp(x[:count].reshape(*leading, K), gate, up, down)
    assert found.shape == (*leading, K_OUT)
    if count:
        assert_close(np.asarray(found).reshape(-1, K_OUT), mlp(x, gate, up, down))


def test_numpy_arrays_are_taken_too():
    given = draw(M, K, N, K_OUT)
    assert_close(jax.jit(cuswiglu.jax.mlp)(*given), mlp(*given))


# vmap


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_over_x_gives_the_same_bits(axis):
    x, *weights = inputs()
    batched = x.reshape(4, 6, K)
    one = jax.vmap(lambda x: cuswiglu.jax.mlp(x, *weights), in_axes=axis, out_axes=axis)
    expected = cuswiglu.jax.mlp(batched, *weights)
    assert (bits(jax.jit(one)(batched)) == bits(expected)).all()


def test_vmap_over_x_twice():
    x, *weights = inputs()
    twice = jax.vmap(jax.vmap(lambda x: cuswiglu.jax.mlp(x, *weights)))
    found = twice(x.reshape(2, 3, 4, K))
    assert_close(np.asarray(found).reshape(M, K_OUT), mlp(x, *weights))


def test_vmap_over_weights():
    x, gate, up, down = inputs()
    gates = jnp.stack([gate, 2 * gate, -gate])
    found = jax.vmap(cuswiglu.jax.mlp, (None, 0, None, None))(x, gates, up, down)
    for one, weight in zip(found, gates, strict=True):
        assert_close(one, mlp(x, weight, up, down))


# Gradients


@pytest.mark.parametrize("function", ["swiglu", "mlp"])
@WRAPPED
def test_gradients_are_those_of_fp32(function, wrap):
    given = inputs()[: 4 if function == "mlp" else 3]
    assert_gradients(getattr(cuswiglu.jax, function), given, tolerance=2**-7, wrap=wrap)


def test_gradients_and_vmap_commute():
    x, *weights = inputs()
    batched = x.reshape(4, 6, K)

    def loss(x):
        return cuswiglu.jax.mlp(x, *weights).sum(dtype=jnp.float32)

    inside = jax.vmap(jax.grad(loss))(batched)
    outside = jax.grad(lambda x: jax.vmap(loss)(x).sum())(batched)
    assert (bits(inside) == bits(outside)).all()
    assert (bits(inside) == bits(jax.grad(loss)(batched))).all()


def test_the_activation_is_computed_again():
    """Nothing of the intermediate's size is kept for the backward pass."""
    _, backward = jax.vjp(cuswiglu.jax.mlp, *inputs())
    kept = {leaf.shape for leaf in jax.tree.leaves(backward) if hasattr(leaf, "shape")}
    assert (M, K) in kept
    assert (M, N) not in kept


# The custom call


def checkpoint_mlp(x, gate, up, down):
    return cuswiglu.jax.mlp(x, gate.T, up.T, down.T)


@pytest.mark.usefixtures("hopper", "any_evenness")
def test_mlp_on_a_hopper_is_one_custom_call():
    (made,) = called(lowered(checkpoint_mlp, *CHECKPOINT))
    assert (made.m, made.k, made.n, made.k_out, made.layout) == (M, K, N, K_OUT, "k")
    assert made.gate_up in [kernel.name for kernel in [*GATED, *DECODE_GATED]]
    assert made.down in [kernel.name for kernel in [*PLAIN, *DECODE_PLAIN]]


@pytest.mark.usefixtures("hopper")
def test_a_down_projection_for_cublas_is_a_plain_product_behind_the_call():
    """Qwen-2.5 14B at a length where it is estimated to be faster."""
    text = lowered(checkpoint_mlp, (180, 5120), (13824, 5120), (13824, 5120), (5120, 13824))
    (made,) = called(text)
    assert (made.k_out, made.down) == (0, "")
    call = text.index("custom_call @")
    assert "dot_general" in text[call : text.index("return", call)]


@pytest.mark.usefixtures("hopper", "any_evenness")
@pytest.mark.skipif(not ALONG_N, reason="no kernel takes weights along N")
def test_weights_along_n_are_handed_over_as_they_are():
    def call(*given):
        return cuswiglu.jax.mlp(*given, weights="n")

    text = lowered(call, (M, K), (K, N), (K, N), (N, K_OUT))
    (made,) = called(text)
    assert made.layout == "n"
    assert "stablehlo.transpose" not in text


@pytest.mark.usefixtures("hopper")
def test_vmap_makes_more_rows_of_one_call():
    def batched(x, gate, up):
        return jax.vmap(lambda x: cuswiglu.jax.swiglu(x, gate.T, up.T))(x)

    (made,) = called(lowered(batched, (5, M, K), *CHECKPOINT[1:3]))
    assert made.m == 5 * M


@pytest.mark.usefixtures("hopper")
def test_the_forward_pass_of_a_gradient_is_the_call():
    def loss(x, gate, up):
        value, gradient = jax.value_and_grad(
            lambda x: cuswiglu.jax.swiglu(x, gate.T, up.T).sum(dtype=jnp.float32)
        )(x)
        return value, gradient

    (made,) = called(lowered(loss, *CHECKPOINT[:3]))
    assert made.m == M


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("kernel", GATED[:2], ids=lambda kernel: kernel.name)
def test_a_variant_is_the_kernel_of_gate_and_up(kernel):
    def call(x, gate, up):
        return cuswiglu.jax.swiglu(x, gate.T, up.T, variant=kernel.name)

    (made,) = called(lowered(call, *CHECKPOINT[:3]))
    assert made.gate_up == kernel.name


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("platform", ["cpu", "tpu", "rocm"])
def test_other_platforms_compute_in_plain_jax_beside_a_hopper(platform):
    given = inputs()
    if platform == "cpu":
        assert_close(jax.jit(cuswiglu.jax.mlp)(*given), mlp(*given))
    elif tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 8):
        # Earlier ones leave the choice, made by then, to XLA.
        assert called(lowered(checkpoint_mlp, *CHECKPOINT, platform=platform)) == []


@pytest.mark.parametrize("variant", ["auto", "cublas"])
def test_without_a_hopper_there_is_no_custom_call(variant):
    def call(x, gate, up):
        return cuswiglu.jax.swiglu(x, gate.T, up.T, variant=variant)

    assert called(lowered(call, *CHECKPOINT[:3])) == []


@pytest.mark.usefixtures("hopper")
def test_cublas_means_plain_jax_on_a_hopper_too():
    def call(x, gate, up):
        return cuswiglu.jax.swiglu(x, gate.T, up.T, variant="cublas")

    assert called(lowered(call, *CHECKPOINT[:3])) == []


@pytest.mark.usefixtures("hopper")
def test_what_no_kernel_computes_is_plain_jax_with_a_warning():
    shapes = (M, K + 4), (N, K + 4), (N, K + 4)
    with pytest.warns(UserWarning, match="K must be a multiple of 8, got 68"):
        text = lowered(lambda x, g, u: cuswiglu.jax.swiglu(x, g.T, u.T), *shapes)
    assert called(text) == []


# Refusals, while JAX traces


@pytest.mark.parametrize("name", ["x", "w_gate", "w_up", "w_down"])
def test_another_dtype_is_refused(name):
    changes = {name: jnp.zeros((4, 4), "float32")}
    refused(TypeError, f"{name} must have dtype bfloat16 or float16, got float32", **changes)


def test_what_is_no_array_is_refused():
    with pytest.raises(TypeError, match="w_up must be a JAX array, got list"):
        cuswiglu.jax.swiglu(*inputs()[:2], [[1.0]])


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("x", (4, K + 8), f"x must have K = {K} columns"),
        ("x", (), "x must have shape (..., K), got a scalar"),
        ("w_gate", (K,), "w_gate must be 2-D"),
        ("w_up", (N, K), f"w_up must have {K} rows (K, as w_gate)"),
        ("w_up", (K, N + 8), "w_up must have the shape of w_gate"),
        ("w_down", (N + 8, K_OUT), f"w_down must have {N} rows"),
        ("w_down", (N, 0), "w_down must not be empty"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(name, shape, words):
    refused(ValueError, words, **{name: jnp.zeros(shape, "bfloat16")})


def test_a_layout_that_is_none_is_refused():
    refused(ValueError, "weights must be 'k' or 'n'", weights="c")


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("fast", "variant must be one of"),
        ("numpy", "variant 'numpy' is not for JAX arrays"),
        (GATED[0].name, "needs a Hopper GPU"),
    ],
)
def test_a_variant_that_is_not_here_is_refused(variant, words):
    refused(ValueError, words, variant=variant)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(("k", "n", "words"), [(68, 96, "K must be"), (64, 100, "N must be")])
def test_a_kernel_by_name_refuses_what_it_cannot_compute(k, n, words):
    x, gate = jnp.zeros((8, k), "bfloat16"), jnp.zeros((k, n), "bfloat16")
    with pytest.raises(ValueError, match=f"{words} a multiple of 8"):
        jax.jit(lambda *g: cuswiglu.jax.swiglu(*g, variant=GATED[0].name))(x, gate, gate)
