"""Activations: their values on the CPU and on the portable path, what kernels are told, errors."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import cuswiglu
from cuswiglu import ClampedSwiGLU
from cuswiglu.backends import cublas, reference
from cuswiglu.problem import activations
from cuswiglu.testing import numerics
from tests.helpers import fp64
from tests.helpers.calls import FUNCTIONS, call, check_refused, layer_of
from tests.helpers.compiled import DECODE_GATED, GATED, entry_of, without
from tests.helpers.device_arrays import all_on_device, on_device
from tests.helpers.fake_driver import coefficients
from tests.helpers.host_arrays import BF16, bits, draw, full, poisoned
from tests.helpers.problems import problem
from tests.helpers.tables import table_for

BY_ACTIVATION = pytest.mark.parametrize("activation", fp64.ACTIVATIONS, ids=str)
BY_FUNCTION = pytest.mark.parametrize("function", FUNCTIONS)
CODES = {
    "silu": 0,
    "gelu": 1,
    "gelu_tanh": 2,
    "relu": 3,
    "sigmoid": 4,
    "identity": 3,
    ClampedSwiGLU(0.5, 3): 2,
}
#: Those that kernels compute from a sigmoid.
LOGISTIC = [one for one in fp64.ACTIVATIONS if one not in ("gelu", "relu", "identity")]
BY_CODE = pytest.mark.parametrize("activation", CODES, ids=str)


# Values


@BY_ACTIVATION
def test_swiglu_is_fp64s_rounded(activation):
    x, gate, up = draw(48, 40, 56)
    found = cuswiglu.swiglu(x, 3 * gate, 3 * up, activation=activation)
    fp64.assert_close(found, fp64.swiglu(x, 3 * gate, 3 * up, activation=activation))


@BY_ACTIVATION
def test_mlp_is_fp64s_with_the_intermediate_rounded(activation):
    x, *weights = draw(16, 40, 56, 24)
    found = cuswiglu.mlp(x, *weights, activation=activation)
    fp64.assert_close(found, fp64.mlp(x, *weights, activation=activation))


@BY_ACTIVATION
def test_gated_mlp_gives_the_bits_of_mlp(activation):
    x, *weights = draw(16, 40, 56, 24)
    layer = cuswiglu.GatedMLP(*weights, activation=activation)
    expected = cuswiglu.mlp(x, *weights, activation=activation)
    assert (bits(layer(x)) == bits(expected)).all()
    assert layer.activation == activation


@BY_ACTIVATION
def test_packed_weights_give_the_bits_of_two_matrices(activation):
    x, gate, up = draw(16, 40, 56)
    found = cuswiglu.swiglu(x, cuswiglu.pack(gate, up), activation=activation)
    assert (bits(found) == bits(cuswiglu.swiglu(x, gate, up, activation=activation))).all()


@BY_ACTIVATION
def test_the_portable_path_is_fp64s_rounded(portable, activation):
    x, gate, up = draw(48, 40, 56)
    out = poisoned(48, 56)
    portable.swiglu(x, 3 * gate, 3 * up, out, activation=activations.find(activation))
    fp64.assert_close(out, fp64.swiglu(x, 3 * gate, 3 * up, activation=activation))


@BY_ACTIVATION
def test_the_reference_of_accuracies_is_that_of_the_tests(activation):
    x, *weights = draw(16, 40, 56, 24)
    found = numerics.mlp_reference(np, x, *weights, activation=activations.find(activation))
    np.testing.assert_allclose(found, fp64.mlp(x, *weights, activation=activation), rtol=1e-12)


EXTREMES = [-np.inf, -3e38, -100.0, -8.0, -5.5, -0.0, 0.0, 5.5, 8.0, 100.0, 3e38, np.inf, np.nan]


def of_one(backend, gate, up, activation):
    """y of one gate and one up."""
    out = poisoned(1, 1)
    meant = activations.find(activation)
    backend(full([[1]]), full([[gate]]), full([[up]]), out, activation=meant)
    return float(out[0, 0])


@BY_ACTIVATION
@pytest.mark.parametrize("gate", EXTREMES)
def test_extreme_gates_give_what_fp64_says_on_both_paths(portable, activation, gate):
    """NaN where it is NaN, zero where it is almost; small tails of GELU have all their bits."""
    found = [of_one(path, gate, 0.5, activation) for path in (reference.swiglu, portable.swiglu)]
    rounded = float(np.array(gate).astype(BF16))
    with np.errstate(all="ignore"):
        expected = fp64.ACTIVATIONS[activation](np.array([[rounded]]), np.array([[0.5]]))[0, 0]
    with np.errstate(over="ignore"):
        expected = float(np.array(expected).astype(BF16))
    np.testing.assert_allclose(found, [expected] * 2, rtol=2**-7, atol=2.0**-60)


@pytest.mark.parametrize("gate", [-80.0, -40.0, -20.0])
def test_small_sigmoids_are_as_precise_as_others_on_both_paths(portable, gate):
    for path in (reference.swiglu, portable.swiglu):
        found = of_one(path, gate, 1.0, "sigmoid")
        np.testing.assert_allclose(found, fp64.ACTIVATIONS["sigmoid"](gate, 1.0), rtol=2**-8)


@pytest.mark.parametrize("up", [-np.inf, -9.0, -7.0, 2.0, 7.0, 9.0, np.inf, np.nan])
def test_the_clamped_swiglu_clamps_up_on_both_sides_and_adds_one(portable, up):
    expected = 2 / (1 + math.exp(-1.702 * 2)) * (np.clip(up, -7, 7) + 1)
    for path in (reference.swiglu, portable.swiglu):
        found = of_one(path, 2.0, up, ClampedSwiGLU())
        np.testing.assert_allclose(found, expected, rtol=2**-8)


def test_the_clamped_swiglu_is_gpt_osss_by_default():
    assert dataclasses.astuple(ClampedSwiGLU()) == (1.702, 7.0)


# What is launched


@BY_CODE
@pytest.mark.parametrize("kernel", [GATED[0], DECODE_GATED[0]], ids=["tiles", "decode"])
def test_a_kernel_is_told_the_activation(gpu, kernel, activation):
    x, gate, up = (on_device(array) for array in draw(4, 64, 96))
    cuswiglu.swiglu(x, gate, up, activation=activation, variant=kernel.name)
    launch = gpu.driver.launches[-1]
    assert launch.named["activation"] == CODES[activation]
    assert coefficients(activation).items() <= launch.named.items()
    assert launch.entry == entry_of(kernel, "k", general=activation != "silu")


@BY_CODE
@pytest.mark.parametrize("kernel", [GATED[0], DECODE_GATED[0]], ids=["tiles", "decode"])
@pytest.mark.parametrize("name", ["b_gate", "b_up"])
def test_a_bias_takes_the_entry_for_extras_whatever_the_activation(gpu, kernel, name, activation):
    x, gate, up = (on_device(array) for array in draw(4, 64, 96))
    bias = on_device(draw(1, 96, 8)[0][0])
    cuswiglu.swiglu(x, gate, up, activation=activation, variant=kernel.name, **{name: bias})
    assert gpu.driver.launches[-1].entry == entry_of(kernel, "k", general=True)


def test_a_kernel_without_an_entry_for_extras_says_so():
    kernel = without(GATED[0], "general")
    asked = dataclasses.replace(problem(), activation=activations.find("gelu"))
    assert kernel.obstacle(asked) == f"{kernel.name} computes SiLU only, without biases"
    assert kernel.obstacle(problem()) is None


@pytest.mark.parametrize("activation", LOGISTIC, ids=str)
def test_the_kernels_formula_with_what_they_are_told_is_the_activation(activation):
    linear, cubic, limit, up_constant = coefficients(activation).values()
    gate, up = np.meshgrid(np.linspace(-12, 12, 97), np.linspace(-9, 9, 13))
    x = np.minimum(gate, limit)
    factor = 1 if activation == "sigmoid" else x
    found = (
        factor / (1 + 2 ** (linear * x + cubic * x**3)) * (np.clip(up, -limit, limit) + up_constant)
    )
    # The reference of GELU by tanh loses its own small tails.
    expected = fp64.ACTIVATIONS[activation](gate, up)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize(("activation", "least"), [("relu", 0), ("identity", -math.inf)])
def test_kernels_are_told_the_least_that_relu_and_the_identity_leave_of_a_gate(activation, least):
    assert coefficients(activation)["limit"] == least


def test_an_alpha_as_large_as_fp32_allows_stays_finite(gpu):
    x, gate, up = (on_device(array) for array in draw(4, 64, 96))
    cuswiglu.swiglu(x, gate, up, activation=ClampedSwiGLU(3.4e38, math.inf))
    named = gpu.driver.launches[-1].named
    assert np.isfinite(named["linear"])
    assert named["limit"] == math.inf


@pytest.mark.usefixtures("any_evenness")
@BY_FUNCTION
@BY_CODE
def test_gate_and_up_have_an_activation_and_the_down_projection_has_none(gpu, function, activation):
    arguments = all_on_device(function)
    call(function, **arguments, activation=activation)
    found = [launch.named["activation"] for launch in gpu.driver.launches]
    assert found == ([CODES[activation]] if function == "swiglu" else [CODES[activation], 0])


@pytest.mark.usefixtures("any_evenness")
@pytest.mark.parametrize("function", ["swiglu", "mlp"])
def test_calls_that_differ_in_the_activation_alone_do_not_share_what_is_kept(gpu, function):
    arguments = all_on_device(function)
    asked = [*CODES, ClampedSwiGLU(0.5, 4), ClampedSwiGLU(0.25, 3)] * 2
    for activation in asked:
        call(function, **arguments, activation=activation)
    step = 1 if function == "swiglu" else 2
    for activation, launch in zip(asked, gpu.driver.launches[::step], strict=True):
        assert launch.named["activation"] == activations.find(activation).code
        assert coefficients(activation).items() <= launch.named.items()


@pytest.mark.usefixtures("any_evenness")
@BY_CODE
def test_weights_of_a_layer_are_loaded_ahead_whatever_the_activation(gpu, activation):
    arguments = all_on_device("GatedMLP")
    layer = layer_of(arguments, activation=activation)
    for _ in range(2):
        layer(arguments["x"])
    _, _, gate_and_up, _ = (launch.named for launch in gpu.driver.launches)
    assert (gate_and_up["weights_ahead"], gate_and_up["activation"]) == (1, CODES[activation])
    assert coefficients(activation).items() <= gate_and_up.items()


@BY_CODE
def test_the_portable_path_is_told_the_activation(gpu, activation):
    gpu.driver.capability = (8, 0)
    x, gate, up, down = (on_device(array) for array in draw(4, 64, 96, 32))
    cuswiglu.mlp(x, gate, up, down, activation=activation)
    assert [function for function, _, _ in gpu.portable] == ["swiglu", "matmul"]
    assert gpu.options[0]["activation"] == activations.find(activation)


def test_a_tuned_choice_counts_whatever_the_activation(gpu, tables):
    tables(packaged=table_for(problem(64, 96, 64), GATED[1].name))
    x, gate, up = (on_device(array) for array in draw(64, 64, 96))
    for activation in CODES:
        found = cuswiglu.explain(x, gate, up, activation=activation)
        assert found.choice.reason.startswith("measured")
        assert f"activation {activations.find(activation)}" in str(found)


# Refusals


@BY_FUNCTION
@pytest.mark.parametrize("value", ["swish", "", "clamped", "SiLU"])
def test_an_unknown_activation_is_refused_and_the_known_are_listed(function, value):
    known = [
        "'silu'",
        "'gelu'",
        "'gelu_tanh'",
        "'relu'",
        "'sigmoid'",
        "'identity'",
        "ClampedSwiGLU",
    ]
    words = ["activation must be", *known, f"got {value!r}"]
    check_refused(function, ValueError, words, activation=value)


@BY_FUNCTION
@pytest.mark.parametrize("value", [None, 3, ["silu"], ClampedSwiGLU], ids=str)
def test_an_activation_that_is_none_is_refused(function, value):
    words = ["activation must be 'silu'", f"got {type(value).__name__}"]
    check_refused(function, TypeError, words, activation=value)


@BY_FUNCTION
def test_an_unknown_activation_is_refused_in_a_later_call_too(gpu, function):
    arguments = all_on_device(function)
    call(function, **arguments)
    before = len(gpu.driver.launches)
    with pytest.raises(ValueError, match="activation must be"):
        call(function, **arguments, activation="swish")
    assert len(gpu.driver.launches) == before


def test_explain_refuses_an_unknown_activation():
    with pytest.raises(ValueError, match="activation must be"):
        cuswiglu.explain(*draw(4, 16, 24), activation="swish")


@pytest.mark.parametrize(
    ("alpha", "limit", "words"),
    [
        (math.inf, 7, "alpha must be finite"),
        (math.nan, 7, "alpha must be finite"),
        (1e39, 7, "alpha must be finite"),
        (1, 0, "limit must be more than 0"),
        (1, -7, "limit must be more than 0"),
        (1, math.nan, "limit must be more than 0"),
        (1, 1e-46, "limit must be more than 0"),
        (1, 1e39, "limit must be more than 0"),
        (10**400, 7, "alpha must be a number that fits in FP32"),
        (1, 10**400, "limit must be a number that fits in FP32"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(alpha, limit, words):
    with pytest.raises(ValueError, match=words):
        ClampedSwiGLU(alpha, limit)


@pytest.mark.parametrize("name", ["alpha", "limit"])
@pytest.mark.parametrize("value", ["7", None, True, np.True_, [7], np.ones(1), 1 + 2j], ids=repr)
def test_what_is_no_number_is_refused(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number, got {type(value).__name__}"):
        ClampedSwiGLU(**{name: value})


def test_the_portable_path_has_an_expression_of_every_activation():
    assert set(cublas._EXPRESSIONS) == {*activations.NAMED, ClampedSwiGLU.name}


def test_a_layer_says_which_activation_it_has_if_it_is_not_silu():
    _, *weights = draw(1, 16, 24, 8)
    assert ", gelu_tanh, on the CPU" in repr(cuswiglu.GatedMLP(*weights, activation="gelu_tanh"))
    assert "ClampedSwiGLU(alpha=1.702, limit=7.0), on the CPU" in repr(
        cuswiglu.GatedMLP(*weights, activation=ClampedSwiGLU())
    )
