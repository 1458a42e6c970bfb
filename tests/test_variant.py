"""What a kernel says of itself: tiles, halves of the last wave, the first limit that is broken."""

from __future__ import annotations

import pytest
from compiled import GATED, PLAIN, made_up, name_of, with_layouts
from problems import plain_problem, problem

from cuswiglu import variants


def kernel(splits):
    return made_up(splits=splits)


@pytest.mark.parametrize(
    ("m", "n", "count"),
    [(1, 8, 1), (256, 96, 1), (257, 96, 2), (256, 97, 2), (1000, 1000, 4 * 11), (0, 96, 0)],
)
def test_clusters_of_tiles_cover_the_result(m, n, count):
    assert made_up(block_m=128, block_n=96, cluster_m=2, cluster_n=1).clusters(m, n) == count


@pytest.mark.parametrize("named", variants(), ids=name_of)
def test_a_kernel_of_one_weight_is_plain_and_the_others_are_gated(named):
    assert named.gated == (named.family != "plain")


# Halves


@pytest.mark.parametrize(
    ("clusters", "whole"),
    [(0, 0), (1, 0), (5, 0), (6, 6), (9, 9), (10, 10), (11, 10), (15, 10), (16, 16), (20, 20)],
)
def test_the_last_of_waves_of_ten_is_halved_up_to_five(clusters, whole):
    assert kernel(splits=True).whole_clusters(clusters, 10) == whole


@pytest.mark.parametrize("clusters", [0, 1, 5, 11, 20])
def test_a_kernel_that_cannot_split_computes_all_whole(clusters):
    assert kernel(splits=False).whole_clusters(clusters, 10) == clusters


def test_halves_fit_in_the_last_wave_and_only_it_is_halved():
    for resident in (1, 2, 3, 33, 66, 132):
        for clusters in range(4 * resident + 1):
            whole = kernel(splits=True).whole_clusters(clusters, resident)
            assert 0 <= 2 * (clusters - whole) <= resident
            assert whole == clusters or whole % resident == 0
            # Whatever could be halved was.
            assert (
                whole < clusters
                or clusters % resident == 0
                or 2 * (clusters % resident) > (resident)
            )


# Limits


@pytest.mark.parametrize("named", [*GATED, *PLAIN], ids=name_of)
def test_a_problem_within_the_limits_meets_no_obstacle(named):
    of_kind = problem if named.gated else plain_problem
    major = named.entries[0][0]
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
