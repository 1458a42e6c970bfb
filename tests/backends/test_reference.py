"""The NumPy backend against FP64: values, rounding points, shapes, layouts, extreme gates."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cuswiglu
from tests.helpers import fp64
from tests.helpers.host_arrays import BF16, bits, draw, full, poisoned

SHAPES = [(1, 8, 8), (3, 5, 7), (2, 1, 3), (33, 72, 40), (64, 576, 192)]  # (M, K, N)


@pytest.mark.parametrize("major", ["k", "n"])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_swiglu_matches_fp64(m, k, n, major):
    x, gate, up = draw(m, k, n, major=major)
    out = poisoned(m, n)
    cuswiglu.swiglu(x, gate, up, out=out)
    fp64.assert_close(out, fp64.swiglu(x, gate, up))


@pytest.mark.parametrize("major", ["k", "n"])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_mlp_matches_fp64_of_the_rounded_intermediate(m, k, n, major):
    x, gate, up, down = draw(m, k, n, k_out=24, major=major)
    out = poisoned(m, 24)
    cuswiglu.mlp(x, gate, up, down, out=out)
    fp64.assert_close(out, fp64.matmul(cuswiglu.swiglu(x, gate, up), down))


def test_weights_of_different_layouts_are_taken():
    x, gate, up = draw(9, 24, 16, major="k")
    mixed = cuswiglu.swiglu(x, gate, np.ascontiguousarray(up))
    np.testing.assert_array_equal(bits(mixed), bits(cuswiglu.swiglu(x, gate, up)))


def test_swiglu_rounds_once():
    """Were gate, up or the activation rounded too, a quarter would not be nearest."""
    x, gate, up = draw(64, 256, 96)
    assert fp64.share_nearest(cuswiglu.swiglu(x, gate, up), fp64.swiglu(x, gate, up)) > 0.99


def test_gate_and_up_are_not_rounded_before_their_product():
    # 257 is no BF16 number (256 and 258 are): 257 * 257 rounds to 66048, 256 * 256 to 65536.
    weight = full([[256], [1]])
    assert float(cuswiglu.swiglu(full([[1, 1]]), weight, weight)[0, 0]) == 66048


def test_mlp_rounds_the_intermediate():
    # Three hidden elements of 257: their unrounded sum, 771, would give 772, and 3 * 256 = 768.
    gate = full([[256] * 3, [1] * 3])
    up = full([[0] * 3, [1] * 3])
    assert float(cuswiglu.mlp(full([[1, 1]]), gate, up, full([[1]] * 3))[0, 0]) == 768


def test_products_accumulate_in_fp32():
    # In BF16 the sum of 1000 ones stays at 256.
    x, gate, up, down = (
        full(np.ones((1, 1000))),
        full([[1]] * 1000),
        full([[1]] * 1000),
        full([[1]]),
    )
    assert float(cuswiglu.swiglu(x, gate, up)[0, 0]) == float(fp64.rounded(np.float64(1e6)))
    assert float(cuswiglu.mlp(x, gate, up, down)[0, 0]) == float(fp64.rounded(np.float64(1e6)))


@pytest.mark.parametrize("leading", [(), (1,), (6,), (2, 3), (1, 3, 1, 2)], ids=str)
def test_leading_dimensions_of_x_are_kept(leading):
    x, gate, up, down = draw(6, 16, 24, k_out=8)
    count = int(np.prod(leading))
    flat = x[:count]
    shaped = flat.reshape(*leading, 16)
    hidden = cuswiglu.swiglu(shaped, gate, up)
    result = cuswiglu.mlp(shaped, gate, up, down)
    assert hidden.shape == (*leading, 24)
    assert result.shape == (*leading, 8)
    np.testing.assert_array_equal(hidden.reshape(count, 24), cuswiglu.swiglu(flat, gate, up))
    np.testing.assert_array_equal(result.reshape(count, 8), cuswiglu.mlp(flat, gate, up, down))


@pytest.mark.parametrize("shape", [(0, 16), (3, 0, 16)])
def test_no_tokens_give_an_empty_result(shape):
    _, gate, up, down = draw(1, 16, 24, k_out=8)
    x = poisoned(*shape)
    for result, columns in [
        (cuswiglu.swiglu(x, gate, up), 24),
        (cuswiglu.mlp(x, gate, up, down), 8),
        (cuswiglu.GatedMLP(gate, up, down)(x), 8),
    ]:
        assert (type(result), result.dtype, result.shape) == (
            np.ndarray,
            BF16,
            (*shape[:-1], columns),
        )


def test_no_tokens_return_the_given_out():
    _, gate, up = draw(1, 16, 24)
    out = poisoned(0, 24)
    assert cuswiglu.swiglu(poisoned(0, 16), gate, up, out=out) is out


@pytest.mark.parametrize("shape", [(6,), (2, 3)], ids=["2-D", "3-D"])
def test_out_is_written_and_returned(shape):
    x, gate, up, down = draw(6, 16, 24, k_out=8)
    x = x.reshape(*shape, 16)
    out = poisoned(*shape, 24)
    assert cuswiglu.swiglu(x, gate, up, out=out) is out
    np.testing.assert_array_equal(out, cuswiglu.swiglu(x, gate, up))
    out = poisoned(*shape, 8)
    assert cuswiglu.mlp(x, gate, up, down, out=out) is out
    np.testing.assert_array_equal(out, cuswiglu.mlp(x, gate, up, down))


def test_only_out_is_written_where_its_rows_are_padded():
    x, gate, up = draw(6, 16, 24)
    guard = poisoned(8, 32)
    cuswiglu.swiglu(x, gate, up, out=guard[1:7, 4:28])
    fp64.assert_close(guard[1:7, 4:28], fp64.swiglu(x, gate, up))
    guard[1:7, 4:28] = np.nan
    assert np.isnan(guard).all()


def test_padded_rows_of_x_and_weights_are_read_in_place():
    x, gate, up = draw(6, 64, 48)
    x, gate, up = x[:, 16:48], gate[16:48, 8:24], up[16:48, 24:40]
    fp64.assert_close(cuswiglu.swiglu(x, gate, up), fp64.swiglu(x, gate, up))


def test_inputs_stay_as_they_were():
    inputs = draw(6, 16, 24, k_out=8)
    before = [array.copy() for array in inputs]
    cuswiglu.mlp(*inputs)
    for array, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(bits(array), bits(copy))


def test_gated_mlp_gives_the_bits_of_mlp():
    x, *weights = draw(6, 16, 24, k_out=8)
    layer = cuswiglu.GatedMLP(*weights)
    expected = cuswiglu.mlp(x, *weights)
    for _ in range(2):
        np.testing.assert_array_equal(bits(layer(x)), bits(expected))
    assert (layer.k, layer.n, layer.k_out) == (16, 24, 8)
    assert all(
        held is given
        for held, given in zip((layer.w_gate, layer.w_up, layer.w_down), weights, strict=True)
    )


def test_gated_mlp_says_what_it_is():
    _, *weights = draw(1, 16, 24, k_out=8)
    assert repr(cuswiglu.GatedMLP(*weights, variant="numpy")) == (
        "GatedMLP(K=16, N=24, K_out=8, K-major, on the CPU, variant='numpy', backend numpy)"
    )


def test_variant_numpy_is_what_auto_runs_on_the_cpu():
    x, gate, up = draw(6, 16, 24)
    auto, numpy = (cuswiglu.swiglu(x, gate, up, variant=name) for name in ("auto", "numpy"))
    np.testing.assert_array_equal(bits(auto), bits(numpy))


@pytest.mark.parametrize("gate", [1e4, -1e4, 88.0, -88.0, -104.0, 3e38, -3e38, np.inf, np.nan])
def test_extreme_gates_saturate_without_a_warning(gate):
    with np.errstate(over="ignore"):
        expected = fp64.rounded(fp64.silu(full([[gate]]).astype(np.float64)) * 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cuswiglu.swiglu(full([[1]]), full([[gate]]), full([[0.5]]))
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_a_gate_of_minus_infinity_gives_nan_as_in_pytorch():
    assert np.isnan(cuswiglu.swiglu(full([[1]]), full([[-np.inf]]), full([[2]]))[0, 0])
