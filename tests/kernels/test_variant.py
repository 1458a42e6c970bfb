"""What a kernel says of itself: rows and columns of tiles, the first limit that is broken."""

from __future__ import annotations

import pytest

from cuswiglu import variants
from cuswiglu.kernels import tile_columns
from tests.helpers.compiled import DECODE, GATED, PLAIN, TILES, made_up, name_of, with_layouts
from tests.helpers.problems import plain_problem, problem

WIDTHS = (("k", (96, 88, 80, 72, 64)), ("n", (96, 64)))


@pytest.mark.parametrize("named", variants(), ids=name_of)
def test_a_kernel_of_one_weight_is_plain_and_the_others_are_gated(named):
    assert named.gated == (named.family not in ("plain", "decode-plain"))


# Tiles


@pytest.mark.parametrize(("m", "rows"), [(1, 1), (256, 1), (257, 2), (512, 2), (1000, 4)])
def test_rows_of_clusters_cover_m(m, rows):
    assert made_up(block_m=128, cluster_m=2).rows(m) == rows


@pytest.mark.parametrize(("major", "widths"), WIDTHS)
def test_columns_are_the_best_of_the_widths_that_the_layout_has(major, widths):
    kernel = made_up(block_m=128, block_n=96, cluster_m=2, widths=WIDTHS)
    found = kernel.columns(1000, 96 * 34, major, resident=66)
    assert found == tile_columns.best(96 * 34, 4, 66, widths)
    assert {found.wide_width, found.narrow_width} <= set(widths)


def test_columns_depend_on_how_many_clusters_run_at_once():
    """66 columns of 64 are a wave of 66 clusters; 44 clusters have one of 44 columns of 96."""
    kernel = made_up(block_m=128, block_n=96, cluster_m=2, widths=WIDTHS)
    assert kernel.columns(256, 64 * 66, "k", resident=66) == tile_columns.uniform(64 * 66, 64)
    assert kernel.columns(256, 64 * 66, "k", resident=44) == tile_columns.uniform(64 * 66, 96)


@pytest.mark.parametrize("named", TILES, ids=name_of)
def test_every_layout_has_widths_and_the_widest_is_the_tile(named):
    assert dict(named.widths).keys() == dict.fromkeys(named.layouts).keys()
    for _, widths in named.widths:
        assert widths[0] == named.block_n
        assert sorted(set(widths), reverse=True) == list(widths)


# Limits


@pytest.mark.parametrize("named", [*GATED, *PLAIN, *DECODE], ids=name_of)
def test_a_problem_within_the_limits_meets_no_obstacle(named):
    of_kind = problem if named.gated else plain_problem
    major = named.layouts[0]
    assert named.obstacle(of_kind(m=300, n=200, k=136, major=major)) is None


@pytest.mark.parametrize(("kernel", "make"), [(GATED[0], problem), (PLAIN[0], plain_problem)])
def test_a_kernel_without_an_n_major_entry_says_which_layout_it_needs(kernel, make):
    only_k = with_layouts(kernel, "k")
    assert only_k.obstacle(make(major="n")) == (
        "the weights must be contiguous along K (a checkpoint's weight.T)"
    )


def test_a_kernel_with_an_n_major_entry_takes_both_layouts():
    both = with_layouts(GATED[0], "k", "n")
    assert both.obstacle(problem(major="n")) is None
    assert both.obstacle(problem(major="k")) is None
