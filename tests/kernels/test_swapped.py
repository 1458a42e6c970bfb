"""How kernels of exchanged operands cut a problem: columns of tokens, and K."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels.swapped import BOX_ROWS
from cuswiglu.kernels.tile_columns import Cut
from tests.helpers.compiled import name_of
from tests.helpers.swapped_kernels import KERNELS, asked_of, of_cluster, qwen_3b

SMS = 132
BY_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
ALONE, PAIR = of_cluster(1), of_cluster(2)
# What hypothesis draws: kernels, sizes, and how many clusters run at once.
KERNEL = st.sampled_from(KERNELS)
TOKENS = st.integers(1, 5000)
EIGHTS = st.integers(1, 3000).map(lambda count: 8 * count)
AT_ONCE = st.integers(1, SMS)


def widths_of(cut):
    return {width for count, width in ((cut.wide, cut.wide_width), (cut.narrow, cut.narrow_width))
            if count}  # fmt: skip


def covered(cut):
    return cut.wide * cut.wide_width + cut.narrow * cut.narrow_width


# Columns of tokens


@BY_KERNEL
def test_columns_cover_m_with_less_than_8_tokens_of_padding_unless_they_are_as_narrow_as_can_be(
    kernel,
):
    for m in range(1, 2001):
        for count in range(1, -(-m // kernel.fewest) + 3):
            cut = kernel.tokens(m, count)
            narrowest = widths_of(cut) == {kernel.fewest}
            assert 0 <= covered(cut) - m < (kernel.fewest if narrowest else 8), (m, count)


@BY_KERNEL
def test_no_column_is_narrower_than_the_fewest_tokens_and_no_two_differ_by_more_than_8(kernel):
    for m in range(1, 2001):
        for count in range(1, -(-m // kernel.fewest) + 3):
            widths = widths_of(kernel.tokens(m, count))
            assert min(widths) >= kernel.fewest, (m, count)
            assert max(widths) - min(widths) in (0, 8), (m, count)


@given(KERNEL, TOKENS, st.integers(1, 100))
def test_there_are_as_many_columns_as_asked_or_fewer_of_the_narrowest(kernel, m, count):
    cut = kernel.tokens(m, count)
    assert cut.count == count or (cut.count < count and widths_of(cut) == {kernel.fewest})


@given(KERNEL, TOKENS, EIGHTS, EIGHTS, AT_ONCE)
def test_ways_to_cut_a_problem_have_columns_that_the_kernel_is_compiled_for(
    kernel, m, n, k, at_once
):
    for slicing in kernel.slicings(asked_of(kernel, m, n, k), at_once):
        assert all(kernel.fewest <= width <= kernel.most for width in widths_of(slicing.tokens))


@pytest.mark.parametrize("kernel", [ALONE, PAIR], ids=name_of)
def test_129_tokens_cost_one_column_of_136(kernel):
    assert kernel.tokens(129, 1) == Cut(1, 136, narrow=0, narrow_width=128)
    assert kernel.estimate(qwen_3b(kernel, 129), SMS, {}).rows == kernel.tokens(129, 1)


# Tiles cut along K


@given(KERNEL, TOKENS, EIGHTS, EIGHTS, AT_ONCE, st.sampled_from(BOX_ROWS), st.integers(0, 3))
def test_a_last_wave_is_cut_along_k_if_all_of_its_halves_run_at_once_and_are_long_or_all_tiles_are(
    kernel, m, n, k, at_once, box_rows, more
):
    tokens = kernel.tokens(m, -(-m // kernel.most) + more)
    cut = kernel.slicing(asked_of(kernel, m, n, k), tokens, box_rows, at_once)
    last = cut.tiles % at_once
    halves_run = 0 < 2 * last <= at_once
    long = -(-k // 64) // 2 >= kernel.stages(tokens.wide_width)
    splits = kernel.cluster_n == 2 and halves_run and long
    split = cut.tiles if kernel.splits_all else last if splits else 0
    assert cut.tiles - cut.whole == split


@pytest.mark.parametrize(("n", "whole"), [(128 * 66, 66), (128 * 67, 66), (128 * 99, 66),
                                          (128 * 100, 100), (128 * 33, 0)])  # fmt: skip
def test_a_last_wave_of_up_to_half_of_the_clusters_is_cut_along_k(n, whole):
    cut = PAIR.slicing(asked_of(PAIR, 136, n, 2048), PAIR.tokens(136, 1), 64, 66)
    assert cut.tiles == n // 128
    assert cut.whole == whole


@pytest.mark.parametrize(("k", "splits"), [(12 * 64, True), (11 * 64 + 8, True), (11 * 64, False)])
def test_k_is_cut_where_either_half_fills_all_stages_anew(k, splits):
    assert PAIR.stages(136) == 6
    cut = PAIR.slicing(asked_of(PAIR, 136, 128 * 67, k), PAIR.tokens(136, 1), 64, 66)
    assert (cut.whole < cut.tiles) == splits


def test_no_tile_is_cut_along_k_without_clusters():
    cut = ALONE.slicing(asked_of(ALONE, 136, 64 * 133, 2048), ALONE.tokens(136, 1), 64, 132)
    assert cut.whole == cut.tiles == 133
