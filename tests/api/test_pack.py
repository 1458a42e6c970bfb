"""Packed weights: exact both ways, accepted in place of the pair, refused when they are no such."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cuswiglu
from cuswiglu import PackedWeights

K, N, K_OUT = 24, 32, 16
draw = np.random.default_rng(0).standard_normal


def bf16(*shape):
    return draw(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


@pytest.fixture(params=["along K", "along N"])
def pair(request):
    if request.param == "along N":
        return bf16(K, N), bf16(K, N)
    return bf16(N, K).T, bf16(N, K).T


@pytest.mark.parametrize("granularity", [8, 1])
def test_rows_take_turns_by_the_granularity(pair, granularity):
    packed = cuswiglu.pack(*pair, granularity=granularity)
    rows = packed.array.reshape(-1, 2, granularity, K)
    for half, weight in zip((rows[:, 0], rows[:, 1]), pair, strict=True):
        np.testing.assert_array_equal(bits(half.reshape(N, K)), bits(weight.T))


@pytest.mark.parametrize("granularity", [8, 1])
def test_unpacking_gives_the_same_bits(pair, granularity):
    for found, weight in zip(
        cuswiglu.pack(*pair, granularity=granularity).unpack(), pair, strict=True
    ):
        np.testing.assert_array_equal(bits(found), bits(weight))


@pytest.mark.parametrize("granularity", [8, 1])
def test_packed_weights_stand_for_the_pair(pair, granularity):
    x, down = bf16(5, K), bf16(N, K_OUT)
    packed = cuswiglu.pack(*pair, granularity=granularity)
    np.testing.assert_array_equal(bits(cuswiglu.swiglu(x, packed)), bits(cuswiglu.swiglu(x, *pair)))
    expected = bits(cuswiglu.mlp(x, *pair, down))
    np.testing.assert_array_equal(bits(cuswiglu.mlp(x, packed, w_down=down)), expected)
    np.testing.assert_array_equal(bits(cuswiglu.GatedMLP(packed, None, down)(x)), expected)


@pytest.mark.parametrize("granularity", [0, 2, 16, "8"])
def test_another_granularity_is_refused(pair, granularity):
    with pytest.raises(ValueError, match="granularity must be 8 or 1"):
        cuswiglu.pack(*pair, granularity=granularity)
    with pytest.raises(ValueError, match="granularity must be 8 or 1"):
        PackedWeights(bf16(2 * N, K), granularity)


def test_columns_that_are_no_whole_turns_are_refused():
    with pytest.raises(ValueError, match=r"w_gate must have a multiple of 8 .* granularity=1"):
        cuswiglu.pack(bf16(K, 12), bf16(K, 12))


def test_w_up_beside_packed_weights_is_refused(pair):
    with pytest.raises(TypeError, match="w_up must be left out"):
        cuswiglu.swiglu(bf16(2, K), cuswiglu.pack(*pair), pair[1])


@pytest.mark.parametrize(
    "array",
    [
        bf16(2 * N + 8, K),  # half a turn too many
        bf16(K, 2 * N).T,  # contiguous along N
        bf16(2 * N, 2 * K)[:, ::2],  # every second element
        bf16(2, N, K),
        bf16(0, K),
    ],
    ids=["half turn", "along N", "strided", "3-D", "empty"],
)
def test_an_array_that_pack_did_not_make_is_refused_before_anything_is_written(array):
    out = np.full((2, N), np.nan, np.float32).astype(ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match=r"w_gate's packed array must be .* cuswiglu\.pack"):
        cuswiglu.swiglu(bf16(2, K), PackedWeights(array, 8), out=out)
    assert np.isnan(out.astype(np.float32)).all()
