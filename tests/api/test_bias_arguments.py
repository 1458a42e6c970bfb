"""Biases: their values on the CPU and on the portable path, what kernels are told, errors."""

from __future__ import annotations

import numpy as np
import pytest

import cuswiglu
from cuswiglu.problem import activations
from cuswiglu.testing import numerics
from tests.helpers import fp64
from tests.helpers.calls import (
    BIASES,
    FUNCTIONS,
    K_OUT,
    K,
    M,
    N,
    biases_of,
    call,
    check_refused,
    drawn_biases,
    good,
    in_fp64,
    layer_of,
    repeated,
)
from tests.helpers.capsules import Producer
from tests.helpers.compiled import DECODE_GATED, GATED
from tests.helpers.device_arrays import all_on_device, device_poisoned, on_device, on_host
from tests.helpers.fake_driver import PLANS, run_in_threads
from tests.helpers.host_arrays import bits, draw, full, poisoned
from tests.helpers.problems import weight

pytestmark = pytest.mark.usefixtures("any_evenness")


CASES = pytest.mark.parametrize(
    ("function", "names"),
    [
        pytest.param(function, names, id=f"{function}-{'+'.join(names)}")
        for function in FUNCTIONS
        for names in [*([name] for name in biases_of(function)), biases_of(function)]
    ],
)
BY_FUNCTION = pytest.mark.parametrize("function", FUNCTIONS)
EACH = pytest.mark.parametrize(
    ("function", "name"), [(f, name) for f in FUNCTIONS for name in biases_of(f)]
)


# Values


@CASES
@pytest.mark.parametrize("activation", ["silu", "relu", cuswiglu.ClampedSwiGLU()], ids=str)
def test_what_is_added_is_fp64s(function, names, activation):
    arguments, added = good(function), drawn_biases(names)
    found = call(function, **arguments, **added, activation=activation)
    fp64.assert_close(found, in_fp64(function, arguments | added, activation))


def test_packed_weights_have_biases_of_two_matrices():
    x, gate, up = draw(6, K, N)
    added = drawn_biases(["b_gate", "b_up"])
    found = cuswiglu.swiglu(x, cuswiglu.pack(gate, up), **added)
    assert (bits(found) == bits(cuswiglu.swiglu(x, gate, up, **added))).all()


def test_biases_of_zeros_change_nothing():
    x, *weights = draw(6, K, N, K_OUT)
    zeros = {name: full(np.zeros(size)) for name, size in BIASES.items()}
    assert (bits(cuswiglu.mlp(x, *weights, **zeros)) == bits(cuswiglu.mlp(x, *weights))).all()


def test_a_sum_is_rounded_once():
    """2^8 and 2^-1 are 2^8 in BF16; what is added before the rounding still counts."""
    one, up = full([[1.0]]), full([[256.0]])
    found = cuswiglu.swiglu(one, full([[64.0]]), up, b_up=full([0.5]))  # silu(64) is 64
    assert float(found[0, 0]) == 64 * 256
    found = cuswiglu.mlp(one, full([[1.0]]), full([[1.0]]), full([[512.0]]), b_down=full([3.0]))
    hidden = float(full([[1 / (1 + np.exp(-1))]])[0, 0])
    assert float(found[0, 0]) == float(full([[512 * hidden + 3]])[0, 0])


@pytest.mark.parametrize("names", [["b_gate"], ["b_up"], ["b_gate", "b_up"]], ids="+".join)
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_the_portable_path_adds_to_gate_and_up(portable, monkeypatch, names, rows):
    monkeypatch.setattr(portable, "PRODUCT_BYTES", rows * 8 * N)
    x, gate, up = draw(9, K, N)
    added, out = drawn_biases(names), poisoned(9, N)
    portable.swiglu(x, gate, up, out, biases=(added.get("b_gate"), added.get("b_up")))
    fp64.assert_close(out, fp64.swiglu(x, gate, up, **added))


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_the_portable_path_adds_to_a_product_of_one_weight(portable, monkeypatch, rows):
    monkeypatch.setattr(portable, "PRODUCT_BYTES", rows * 4 * N)
    x, gate, _ = draw(9, K, N)
    (bias,), out = drawn_biases(["b_gate"]).values(), poisoned(9, N)
    portable.matmul(x, gate, out, biases=(bias, None))
    fp64.assert_close(out, fp64.matmul(x, gate, bias))


def test_the_reference_of_accuracies_is_that_of_the_tests():
    arguments, added = good("mlp"), drawn_biases(BIASES)
    given = (arguments[name] for name in ("x", "w_gate", "w_up", "w_down"))
    found = numerics.mlp_reference(
        np, *given, activation=activations.SILU, biases=list(added.values())
    )
    np.testing.assert_allclose(found, in_fp64("mlp", arguments | added), rtol=1e-12)


# What is launched


def device_biases(*names, offset=0):
    return {name: device_poisoned(BIASES[name], offset=offset) for name in names}


def told(gpu, count):
    """Addresses of the biases in the last launches."""
    return [launch.biases for launch in gpu.driver.launches[-count:]]


def expected_addresses(function, added):
    gate, up, down = (added[name].data.ptr if name in added else 0 for name in BIASES)
    return [(gate, up)] if function == "swiglu" else [(gate, up), (down, 0)]


@CASES
@pytest.mark.parametrize("out", ["given", "new"])
def test_kernels_are_told_where_biases_lie_in_every_call(gpu, function, names, out):
    arguments = all_on_device(function)
    if out == "new":
        arguments["out"] = None
    for added in (device_biases(*names), device_biases(*names), {}, device_biases(*names)):
        call(function, **arguments, **added)
        expected = expected_addresses(function, added)
        assert told(gpu, len(expected)) == expected


@CASES
def test_a_layer_or_a_call_again_makes_no_new_plan(gpu, function, names):
    added = device_biases(*names)
    again = repeated(function, all_on_device(function) | added)
    for number in range(3):
        gpu.driver.calls = []
        again(out=None)
        assert (gpu.driver.count(PLANS) == 0) == (number > 0)
        assert told(gpu, 1 if function == "swiglu" else 2) == expected_addresses(function, added)


@pytest.mark.parametrize("kernel", [GATED[0], DECODE_GATED[0]], ids=["tiles", "decode"])
def test_both_kinds_of_kernels_are_told(gpu, kernel):
    arguments, added = all_on_device("swiglu"), device_biases("b_gate", "b_up")
    call("swiglu", **arguments, **added, variant=kernel.name)
    assert told(gpu, 1) == expected_addresses("swiglu", added)


@BY_FUNCTION
def test_a_bias_may_begin_at_any_element(gpu, function):
    added = device_biases(*biases_of(function), offset=1)
    call(function, **all_on_device(function), **added)
    assert told(gpu, 1 if function == "swiglu" else 2) == expected_addresses(function, added)


@BY_FUNCTION
def test_biases_of_another_library_are_used_where_they_lie(gpu, function):
    added = device_biases(*biases_of(function))
    call(function, **all_on_device(function), **{n: Producer(bias) for n, bias in added.items()})
    assert told(gpu, 1 if function == "swiglu" else 2) == expected_addresses(function, added)


@BY_FUNCTION
def test_the_portable_path_gets_the_arrays(gpu, function):
    gpu.driver.capability = (8, 0)
    added = device_biases(*biases_of(function))
    call(function, **all_on_device(function), **added)
    gate, *down = gpu.options
    assert gate["biases"] == (added["b_gate"], added["b_up"])
    assert [one["biases"] for one in down] == (
        [] if function == "swiglu" else [(added["b_down"], None)]
    )


@pytest.mark.filterwarnings("ignore:cuswiglu takes the portable path")
@pytest.mark.parametrize("function", ["mlp", "GatedMLP"])
@pytest.mark.parametrize("names", [["b_down"], ["b_gate"], list(BIASES)], ids="+".join)
def test_a_down_projection_on_the_portable_path_adds_its_bias_in_later_calls_too(
    gpu, function, names
):
    arguments = all_on_device(function) | {"w_down": on_device(weight(N, K_OUT, "k", offset=1))}
    for _ in range(2):
        added = device_biases(*names)
        gpu.options.clear()
        call(function, **arguments, **added)
        (options,) = gpu.options
        if "b_down" in added:
            assert options["biases"][0] is added["b_down"]
        else:
            assert not any(bias is not None for bias in options.get("biases", ()))


def test_threads_share_a_call_without_mixing_their_biases(gpu):
    arguments = all_on_device("mlp")
    sets = [device_biases(*BIASES) for _ in range(8)]
    outs = [device_poisoned(M, K_OUT) for _ in sets]

    def work(number):
        for _ in range(25):
            call("mlp", **arguments | {"out": outs[number]}, **sets[number], stream=100 + number)

    run_in_threads(work, count=8)
    for stream, added in enumerate(sets):
        own = [launch.biases for launch in gpu.driver.launches if launch.stream == 100 + stream]
        assert own == expected_addresses("mlp", added) * 25


def test_a_layer_holds_them_as_they_were_given():
    arguments, added = good("GatedMLP"), drawn_biases(BIASES)
    layer = layer_of(arguments | added)
    assert (layer.b_gate, layer.b_up, layer.b_down) == tuple(added.values())
    assert "with b_gate, b_up, b_down, on the CPU" in repr(layer)
    without = layer_of(arguments)
    assert without.b_gate is without.b_up is without.b_down is None


def test_a_captured_call_reads_the_layers_biases(gpu):
    arguments, added = all_on_device("GatedMLP"), device_biases(*BIASES)
    step = layer_of(arguments | added).capture(arguments["x"])
    gpu.driver.launches = []
    step(arguments["x"])
    assert told(gpu, 2) == expected_addresses("mlp", added)


# Refusals


@EACH
@pytest.mark.parametrize("shape", ["one more", "one", "2-D", "scalar"])
def test_a_bias_of_another_shape_is_refused(function, name, shape):
    size = BIASES[name]
    shape = {"one more": (size + 1,), "one": (1,), "2-D": (1, size), "scalar": ()}[shape]
    words = [f"{name} must have shape ({size},)", f"column of w_{name[2:]}", f"got {shape}"]
    check_refused(function, ValueError, words, **{name: poisoned(*shape)})


@EACH
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_bias_of_another_dtype_is_refused(function, name, dtype):
    words = [f"{name} must have dtype bfloat16 or float16, got {dtype}"]
    check_refused(function, TypeError, words, **{name: np.zeros(BIASES[name], dtype)})


@EACH
def test_a_bias_that_is_no_array_is_refused(function, name):
    words = [f"{name} must be a NumPy or CuPy array", "got float"]
    check_refused(function, TypeError, words, **{name: 0.0})


@EACH
@pytest.mark.parametrize("step", [2, -1, 0])
def test_a_bias_that_is_not_contiguous_is_refused(function, name, step):
    size = BIASES[name]
    value = poisoned(2 * size)[:: step or 2][:size]
    if step == 0:
        value = np.broadcast_to(value[:1], (size,))
    words = [f"{name} must be contiguous", f"a stride of {step} elements"]
    check_refused(function, ValueError, words, **{name: value})


@EACH
def test_a_bias_that_lives_elsewhere_is_refused(gpu, function, name):
    for elsewhere in (poisoned(BIASES[name]), device_poisoned(BIASES[name], index=1)):
        arguments = all_on_device(function)
        with pytest.raises(ValueError, match=f"w_gate and {name} must live on the same device"):
            call(function, **arguments, **{name: elsewhere})
        assert np.isnan(on_host(arguments["out"])).all()
    assert gpu.driver.launches == []


@EACH
def test_an_out_that_overlaps_a_bias_is_refused_on_the_cpu(function, name):
    arguments = good(function)
    out = arguments["out"]
    memory = poisoned(out.size + BIASES[name] - 1)
    arguments["out"] = memory[: out.size].reshape(out.shape)
    with pytest.raises(ValueError, match=f"out must not overlap {name}"):
        call(function, **arguments, **{name: memory[out.size - 1 :]})
    assert np.isnan(memory).all()


@EACH
def test_an_out_that_comes_to_overlap_a_bias_is_refused(gpu, function, name):
    """In a later call too; a layer's biases do not move, its out does."""
    arguments = all_on_device(function)
    out, size = arguments["out"], BIASES[name]
    memory = poisoned(2 * out.size + size)
    bias = on_device(memory[out.size : out.size + size])
    apart = on_device(memory[: out.size].reshape(out.shape))
    overlapping = on_device(memory[8 : out.size + 8].reshape(out.shape))
    again = repeated(function, arguments | {name: bias})
    again(out=apart)
    before = len(gpu.driver.launches)
    with pytest.raises(ValueError, match=f"out must not overlap {name}"):
        again(out=overlapping)
    assert len(gpu.driver.launches) == before
