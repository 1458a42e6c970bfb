"""What kernels of exchanged operands are thought to take, and the way to cut that follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels.swapped import Slicing, SwappedVariant
from tests.helpers.compiled import name_of
from tests.helpers.swapped_kernels import KERNELS, asked_of, qwen_3b

SMS = 132
BY_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
KERNEL, TOKENS = st.sampled_from(KERNELS), st.integers(1, 5000)
EIGHTS = st.integers(1, 3000).map(lambda count: 8 * count)


@BY_KERNEL
def test_the_time_of_qwen_3b_never_falls_by_more_than_3_percent_as_tokens_grow_by_8(kernel):
    times = {m: kernel.estimate(qwen_3b(kernel, m), SMS, {}).us for m in range(129, 513, 8)}
    falls = {
        m: (times[m - 8], us) for m, us in times.items() if m > 129 and us < 0.97 * times[m - 8]
    }
    assert falls == {}


@given(KERNEL, TOKENS, EIGHTS, EIGHTS)
def test_no_way_to_cut_a_problem_is_faster_by_estimate_than_the_best(kernel, m, n, k):
    asked, at_once = asked_of(kernel, m, n, k), kernel.resident(SMS)
    best = kernel.microseconds(asked, kernel.best(asked, at_once), at_once)
    for cut in kernel.slicings(asked, at_once):
        assert best <= kernel.microseconds(asked, cut, at_once) + 1e-6
    assert kernel.estimate(asked, SMS, {}).us == best


@BY_KERNEL
def test_of_ways_that_are_equally_fast_the_best_has_the_fewest_tiles(kernel, monkeypatch):
    monkeypatch.setattr(SwappedVariant, "microseconds", lambda *arguments: 10.0)
    for m in (65, 129, 300, 1000):
        asked = qwen_3b(kernel, m)
        fewest = min(cut.tiles for cut in kernel.slicings(asked, 66))
        assert kernel.best(asked, 66).tiles == fewest


@given(KERNEL, TOKENS, EIGHTS, EIGHTS)
def test_the_result_is_at_most_all_of_the_clusters_time(kernel, m, n, k):
    assert 0 < kernel.estimate(asked_of(kernel, m, n, k), SMS, {}).evenness <= 1 + 1e-9


@BY_KERNEL
def test_more_steps_of_k_cost_more_and_a_part_of_one_costs_a_whole_one(kernel):
    tokens, at_once = kernel.tokens(1000, 5), kernel.resident(SMS)

    def us(k):
        asked = asked_of(kernel, 1000, 200_000, k)
        tiles = kernel.slicing(asked, tokens, 64, at_once).tiles
        return kernel.microseconds(asked, Slicing(tokens, 64, tiles, tiles), at_once)

    assert us(960) < us(968) < us(1032)
    assert us(968) == pytest.approx(us(1024), rel=1e-3)
