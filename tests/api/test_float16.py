"""FP16 beside BF16: values, what kernels are told, and arrays of both in one call."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import cuswiglu
from cuswiglu.problem import activations
from cuswiglu.selection import select
from cuswiglu.testing import numerics
from tests.helpers import fp64
from tests.helpers.calls import FUNCTIONS, K_OUT, K, M, N, call, good, in_fp64, layer_of
from tests.helpers.capsules import Producer
from tests.helpers.compiled import (
    DECODE_GATED,
    GATED,
    PLAIN,
    entry_of,
    name_of,
    pretend_compiled,
    without,
)
from tests.helpers.device_arrays import all_on_device, cupy, device_poisoned, on_device, on_host
from tests.helpers.fake_driver import PLANS
from tests.helpers.host_arrays import BF16, FP16, bits, draw, full, poisoned
from tests.helpers.problems import of_elements, plain_problem, problem
from tests.helpers.tables import H200, table_for

BY_FUNCTION = pytest.mark.parametrize("function", FUNCTIONS)
ARGUMENTS = ["x", "w_gate", "w_up", "w_down", "out", "b_gate", "b_up", "b_down"]


# Values


@BY_FUNCTION
@pytest.mark.parametrize("activation", ["silu", "gelu", cuswiglu.ClampedSwiGLU()], ids=str)
@pytest.mark.parametrize("out", ["given", "new"])
def test_results_are_fp64s_rounded_to_fp16(function, activation, out):
    named = good(function, FP16, biased=True)
    if out == "new":
        named["out"] = None
    found = call(function, **named, activation=activation)
    assert found.dtype == FP16
    fp64.assert_close(found, in_fp64(function, named, activation))


def test_packed_weights_give_the_bits_of_two_matrices():
    x, gate, up = draw(M, K, N, dtype=FP16)
    packed = cuswiglu.pack(gate, up)
    assert packed.array.dtype == FP16
    assert (bits(cuswiglu.swiglu(x, packed)) == bits(cuswiglu.swiglu(x, gate, up))).all()


def test_what_is_beyond_fp16_becomes_infinite_without_a_warning_and_subnormals_stay():
    one = full([[1.0]], dtype=FP16)
    for gate, up, expected in ((1e4, 10.0, np.inf), (64.0, 2.0**-22, 2.0**-16)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = cuswiglu.swiglu(one, full([[gate]], dtype=FP16), full([[up]], dtype=FP16))
        assert float(found[0, 0]) == expected


def test_the_portable_path_rounds_to_fp16(portable):
    x, gate, up = draw(9, K, N, dtype=FP16)
    (b_gate, b_up), out = draw(2, N, 8, dtype=FP16)[0], poisoned(9, N, dtype=FP16)
    gelu = activations.find("gelu")
    portable.swiglu(x, gate, up, out, activation=gelu, biases=(b_gate, b_up))
    fp64.assert_close(out, fp64.swiglu(x, gate, up, b_gate, b_up, "gelu"))


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_an_ulp_is_that_of_the_dtype(dtype):
    """Below 1 they are half as wide."""
    step = {BF16: 2**-7, FP16: 2**-10}[dtype]
    found = (1 + step * np.array([0, 1, 2, -1])).astype(dtype)
    assert numerics.compare(np, found, np.ones(4)).within_ulp == 0.5


def test_the_reference_of_accuracies_rounds_the_intermediate_to_fp16():
    x, *weights = draw(M, K, N, K_OUT, dtype=FP16)
    found = numerics.mlp_reference(np, x, *weights)
    np.testing.assert_allclose(found, fp64.mlp(x, *weights), rtol=1e-12)


# What is launched


@pytest.mark.parametrize("kernel", [*GATED, *DECODE_GATED], ids=name_of)
def test_an_entry_for_fp16_is_launched_on_descriptors_of_fp16(gpu, kernel):
    x, gate, up = (on_device(array) for array in draw(64, 64, 96, dtype=FP16))
    result = cuswiglu.swiglu(x, gate, up, variant=kernel.name)
    (launch,) = gpu.driver.launches
    assert launch.entry == entry_of(kernel, "k", "float16")
    assert {found.data_type for found in launch.maps} == {6}  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    assert (result.dtype, result.data.ptr) == (FP16, launch.addresses[3])


@pytest.mark.usefixtures("any_evenness")
@BY_FUNCTION
def test_calls_of_both_dtypes_do_not_share_what_is_kept(gpu, function):
    for dtype in (BF16, FP16, BF16, FP16):
        gpu.driver.launches = []
        named = all_on_device(function, dtype=dtype, biased=True)
        assert call(function, **named | {"out": None}).dtype == dtype
        assert call(function, **named) is named["out"]
        launches = gpu.driver.launches
        assert ["_f16" in launch.entry for launch in launches] == [dtype == FP16] * len(launches)
        gate_and_up = launches if function == "swiglu" else launches[::2]
        biases = named["b_gate"].data.ptr, named["b_up"].data.ptr
        assert [launch.biases for launch in gate_and_up] == [biases] * 2


@pytest.mark.usefixtures("any_evenness")
def test_a_layer_of_fp16_takes_the_quick_way_too(gpu):
    named = all_on_device("GatedMLP", dtype=FP16)
    layer = layer_of(named)
    for number in range(3):
        gpu.driver.calls = []
        assert layer(named["x"]).dtype == FP16
        assert (gpu.driver.count(PLANS) == 0) == (number > 0)
    assert "float16, on CUDA device 0" in repr(layer)
    assert all(("_f16" in launch.entry) for launch in gpu.driver.launches)


@pytest.mark.usefixtures("any_evenness")
def test_a_captured_call_of_fp16_takes_fp16(gpu):
    named = all_on_device("GatedMLP", dtype=FP16)
    layer = layer_of(named)
    step = layer.capture(named["x"])
    assert step(named["x"]).dtype == step.x.dtype == FP16
    with pytest.raises(TypeError, match="x must have the captured dtype float16, got bfloat16"):
        step(device_poisoned(M, K))


def test_a_kernel_that_knows_bf16_only_is_no_choice_and_the_portable_path_takes_fp16(
    gpu, monkeypatch
):
    (kernel,) = pretend_compiled(monkeypatch, without(GATED[0], "float16"))
    named = all_on_device("swiglu", dtype=FP16, biased=True)
    words = f"{kernel.name} computes bfloat16 only, got float16"
    with pytest.warns(UserWarning, match=f"takes the portable path: {words}"):
        call("swiglu", **named)
    ((function, (x, *_, out), _),) = gpu.portable
    assert (function, x.dtype, out.dtype) == ("swiglu", FP16, FP16)
    with pytest.raises(ValueError, match=f"cannot compute this problem: {words}"):
        call("swiglu", **named, variant=kernel.name)
    assert gpu.driver.launches == []


def test_what_was_measured_counts_for_both(tables):
    tables(packaged=table_for(problem(64, 96, 64), GATED[1].name))
    for dtype in (BF16, FP16):
        found = cuswiglu.explain(*draw(64, 64, 96, dtype=dtype), device=H200)
        assert found.choice.variant == GATED[1].name
        assert found.choice.reason.startswith("measured")
        assert str(np.dtype(dtype)) in str(found)


# Other libraries


def test_a_producer_of_fp16_is_seen_without_a_copy():
    array = full(np.arange(6), dtype=FP16)
    found = cuswiglu.asarray(Producer(array, dtype=("float", 16)))
    assert (found.dtype, found.ctypes.data) == (FP16, array.ctypes.data)


def test_a_producer_on_a_device_is_seen_without_a_copy(gpu):
    array = device_poisoned(2, 3, dtype=FP16)
    found = cuswiglu.asarray(Producer(array, dtype=("float", 16)))
    assert (found.dtype, found.data.ptr) == (FP16, array.data.ptr)


def test_a_result_like_the_input_is_handed_over_as_fp16(gpu):
    handed = []

    class Array(Producer):
        def __array_namespace__(self):
            return SimpleNamespace(from_dlpack=lambda array: handed.append(array) or "theirs")

    x, gate, up = (on_device(array) for array in draw(M, K, N, dtype=FP16))
    given = Array(x, dtype=("float", 16))
    assert cuswiglu.swiglu(given, gate, up, like="input") == "theirs"
    assert isinstance(handed[0], cupy.ndarray)
    assert handed[0].dtype == FP16


# Both in one call


MIXED = pytest.mark.parametrize(
    ("function", "name"),
    [
        (function, name)
        for function in FUNCTIONS
        for name in ARGUMENTS
        if (function, name) not in (("swiglu", "b_down"), ("swiglu", "w_down"))
    ],
)


@MIXED
@pytest.mark.parametrize("others", [BF16, FP16], ids=str)
def test_an_array_of_the_other_dtype_is_refused(function, name, others):
    other = FP16 if others == BF16 else BF16
    named = good(function, others, biased=True)
    named[name] = named[name].astype(other)
    with pytest.raises(TypeError, match="must have the same dtype, got") as caught:
        call(function, **named)
    for word in (name, str(others), str(other), "convert one of them"):
        assert word in str(caught.value)
    assert np.isnan(named["out"]).all()


@MIXED
def test_an_array_of_the_other_dtype_is_refused_in_a_later_call_too(gpu, function, name):
    named = all_on_device(function, dtype=FP16, biased=True)
    call(function, **named)
    gpu.driver.launches, gpu.portable[:] = [], []
    named[name] = device_poisoned(*named[name].shape)
    with pytest.raises(TypeError, match="must have the same dtype, got"):
        call(function, **named)
    assert gpu.driver.launches == gpu.portable == []
    assert np.isnan(on_host(named["out"]).astype(np.float32)).all()


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_a_layer_refuses_the_other_dtype_after_its_own(gpu, dtype):
    named = all_on_device("GatedMLP", dtype=dtype)
    layer = layer_of(named)
    layer(named["x"])
    other = device_poisoned(M, K, dtype=FP16 if dtype == BF16 else BF16)
    with pytest.raises(TypeError, match="x and w_gate must have the same dtype"):
        layer(other)


def test_weights_of_two_dtypes_cannot_be_packed():
    _, gate, up = draw(M, K, N)
    with pytest.raises(TypeError, match="w_gate and w_up must have the same dtype"):
        cuswiglu.pack(gate, up.astype(FP16))


def test_the_obstacle_is_that_of_a_kernel_for_such_weights():
    one = of_elements(plain_problem(), "float16")
    kernels = [without(kernel, "float16") for kernel in (GATED[0], PLAIN[0])]
    with pytest.warns(UserWarning, match=f"{PLAIN[0].name} computes bfloat16 only"):
        assert select.select(one, H200, "auto", kernels).backend == "cublas"


def test_a_kernel_says_which_dtype_it_computes():
    asked = of_elements(problem(), "float16")
    bf16_only = without(GATED[0], "float16")
    assert bf16_only.obstacle(asked) == f"{bf16_only.name} computes bfloat16 only, got float16"
    assert GATED[0].obstacle(asked) is None
    assert GATED[0].takes(asked)  # such weights, though not of this dtype
    assert select.select(asked, H200, "cublas").backend == "cublas"
