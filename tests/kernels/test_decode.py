"""How a decode kernel's work is cut: tilings, splits, estimates."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels import decode, decode_cost
from cuswiglu.kernels.decode import smallest_fitting
from cuswiglu.kernels.estimate import LOAD_RATE
from cuswiglu.kernels.split import Split
from cuswiglu.models.shapes import SHAPES
from cuswiglu.problem import Layout
from tests.helpers.compiled import DECODE, DECODE_GATED, DECODE_PLAIN, name_of
from tests.helpers.problems import plain_problem, problem

SMS = 132
SM_BYTES = 227 << 10
BY_KERNEL = pytest.mark.parametrize("kernel", DECODE, ids=name_of)
PROBLEMS = {(gated, major): (problem if gated else plain_problem)(major=major)
            for gated in (True, False) for major in ("k", "n")}  # fmt: skip
QWEN = {name: sizes for name, sizes in SHAPES.items() if name.startswith("qwen")}


def asked_of(kernel, m, n, k, major="k"):
    """A problem of these sizes for a kernel."""
    return dataclasses.replace(PROBLEMS[kernel.gated, major], m=m, n=n, k=k)


def of_tokens(tokens, *, gated):
    kernels = DECODE_GATED if gated else DECODE_PLAIN
    return next(kernel for kernel in kernels if kernel.tokens == tokens)


GATED_16, PLAIN_16 = of_tokens(16, gated=True), of_tokens(16, gated=False)
GATED_128 = of_tokens(128, gated=True)

# What hypothesis draws: any sizes that a kernel takes, and any splits.
EIGHTS = st.integers(1, 5000).map(lambda count: 8 * count)
KERNELS_DRAWN, LAYOUTS = st.sampled_from(DECODE), st.sampled_from(["k", "n"])
ROWS = st.integers(1, 128) | st.integers(1, 16).map(lambda count: 8 * count)
SPLITS = st.builds(Split, ROWS, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]))


# Layouts


@pytest.mark.parametrize(
    ("kernel", "k", "refused"),
    [
        (GATED_16, 4096, Split(0, 1, 1)),
        (GATED_16, 4096, Split(-8, 1, 1)),
        (GATED_16, 4096, Split(129, 1, 1)),
        (GATED_16, 4096, Split(32, 2, 1)),
        (GATED_16, 4096, Split(32, 0, 1)),
        (PLAIN_16, 4096, Split(32, 3, 1)),
        (PLAIN_16, 4096, Split(32, 16, 1)),
        (PLAIN_16, 128, Split(32, 2, 1)),
        (PLAIN_16, 7 * 128, Split(32, 8, 1)),
        (GATED_16, 4096, Split(32, 1, 0)),
        (GATED_16, 4096, Split(32, 1, 3)),
        (GATED_128, 4096, Split(32, 1, 2)),
        (of_tokens(64, gated=False), 4096, Split(128, 8, 2)),
    ],
    ids=[
        *("no rows", "negative rows", "more rows than two products"),
        *("gate and up over two CTAs", "no CTA"),
        *("three CTAs", "more CTAs than a cluster has"),
        *("more CTAs than steps of K", "eight CTAs for seven steps"),
        *("no CTA an SM", "three CTAs an SM", "more CTAs than registers", "no room for two stages"),
    ],
)
def test_a_split_beyond_a_limit_has_no_layout(kernel, k, refused):
    assert kernel.tiling(asked_of(kernel, 16, 4096, k), refused) is None


@pytest.mark.parametrize(
    ("kernel", "k", "split"),
    [
        (GATED_16, 4096, Split(1, 1, 1)),
        (GATED_16, 4096, Split(128, 1, 1)),
        (PLAIN_16, 256, Split(32, 2, 1)),
        (PLAIN_16, 129, Split(32, 2, 1)),
        (PLAIN_16, 8 * 128, Split(32, 8, 1)),
        (GATED_16, 4096, Split(32, 1, 2)),
        (GATED_128, 4096, Split(32, 1, 1)),
        (of_tokens(64, gated=False), 4096, Split(128, 8, 1)),
    ],
)
def test_a_split_at_a_limit_has_a_layout(kernel, k, split):
    assert kernel.tiling(asked_of(kernel, 16, 4096, k), split) is not None


@BY_KERNEL
def test_tiles_of_weights_along_n_begin_at_multiples_of_16_bytes(kernel):
    along_n, along_k = (asked_of(kernel, 16, 4096, 4096, major) for major in ("n", "k"))
    for rows in range(1, 129):
        split = Split(rows, 1, 1)
        assert (kernel.tiling(along_n, split) is not None) == (rows % 8 == 0)
        assert kernel.tiling(along_k, split) is not None


def test_tiles_are_of_the_weights_and_of_tokens():
    found = PLAIN_16.tiling(asked_of(PLAIN_16, 33, 1000, 4096), Split(24, 4, 1))
    assert found.items == 42 * 3


@pytest.mark.parametrize(
    ("kernel", "k", "ranks", "steps"),
    [
        (GATED_16, 64, 1, 1),
        (GATED_16, 72, 1, 2),
        (PLAIN_16, 128, 1, 1),
        (PLAIN_16, 136, 1, 2),
        (PLAIN_16, 9 * 128, 8, 2),
        (PLAIN_16, 8 * 128, 8, 1),
    ],
)
def test_a_step_of_k_is_two_boxes_of_weights_and_ctas_of_one_weight_share_the_steps(
    kernel, k, ranks, steps
):
    """Of gate and of up, or two of the only weight, one behind another."""
    assert kernel.tiling(asked_of(kernel, 16, 4096, k), Split(32, ranks, 1)).steps == steps


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, LAYOUTS, SPLITS)
def test_a_cta_fits_as_often_as_it_says(kernel, m, n, k, major, split):
    """With what the hardware keeps of a CTA for itself: 1 KiB."""
    found = kernel.tiling(asked_of(kernel, m, n, k, major), split)
    if found is not None:
        assert 0 < found.shared_bytes <= kernel.most_shared == SM_BYTES
        assert split.ctas * (found.shared_bytes + 1024) <= SM_BYTES + 1024


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, LAYOUTS, SPLITS)
def test_at_least_two_steps_are_in_flight_if_there_are_two(kernel, m, n, k, major, split):
    found = kernel.tiling(asked_of(kernel, m, n, k, major), split)
    if found is not None:
        assert found.stages >= min(2, found.steps * found.items)
        assert found.stages <= min(kernel.max_stages, found.steps * found.items)


def bytes_by_the_header(kernel, asked, split, stages):
    """Shared memory as `Cta` of decode_traits.cuh lays it out, from `barriers` to the last sum."""
    row = 64 * 2
    atom = 8 if asked.layout == "k" else 64
    weights = -(-split.rows // atom) * atom * row
    x_boxes = 1 if kernel.gated else 2
    ring = stages * (2 * weights + x_boxes * kernel.tokens * row)
    exchange = 4 * 2 * (kernel.tokens // 4) * 128
    if split.ranks == 1:  # no sums are sent
        return 1024 + ring, exchange
    share = -(-split.rows // (4 * split.ranks)) * 4
    sums = 4 * split.ranks * min(kernel.tokens, 64) * share
    return 1024 + ring, max(sums, exchange) + sums


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, LAYOUTS, SPLITS)
def test_shared_memory_is_barriers_and_stages_and_sums(kernel, m, n, k, major, split):
    asked = asked_of(kernel, m, n, k, major)
    found = kernel.tiling(asked, split)
    if found is not None:
        ring, sums = bytes_by_the_header(kernel, asked, split, found.stages)
        assert found.shared_bytes == ring + max(sums, decode.SLACK_BYTES)


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, SPLITS)
def test_a_product_reads_no_byte_behind_shared_memory(kernel, m, n, k, split):
    """Of the last box of weights it reads 64 rows, or 128, whatever the rows of the tile."""
    asked = asked_of(kernel, m, n, k)
    found = kernel.tiling(asked, split)
    if found is not None:
        ring, _ = bytes_by_the_header(kernel, asked, split, found.stages)
        x_boxes = 1 if kernel.gated else 2
        behind_the_last = -(-split.rows // 8) * 8 * 128 + x_boxes * kernel.tokens * 128
        read = (64 if split.rows <= 64 else 128) * 128
        assert ring - behind_the_last + read <= found.shared_bytes


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, LAYOUTS, SPLITS)
def test_another_stage_would_not_fit_or_is_of_no_use(kernel, m, n, k, major, split):
    asked = asked_of(kernel, m, n, k, major)
    found = kernel.tiling(asked, split)
    if found is not None and found.stages < min(kernel.max_stages, found.steps * found.items):
        ring, sums = bytes_by_the_header(kernel, asked, split, found.stages + 1)
        assert ring + max(sums, decode.SLACK_BYTES) > decode.ROOM_BYTES[split.ctas]


@BY_KERNEL
@pytest.mark.parametrize("rows", [1, 8, 27, 64, 65, 128])
def test_boxes_along_k_have_the_rows_of_a_tile(kernel, rows):
    found = kernel.tiling(asked_of(kernel, 5, 4096, 64), Split(rows, 1, 1))
    assert found.box_rows == rows


@BY_KERNEL
@pytest.mark.parametrize("rows", [8, 64, 72, 128])
def test_boxes_along_n_are_64_wide(kernel, rows):
    found = kernel.tiling(asked_of(kernel, 5, 4096, 64, "n"), Split(rows, 1, 1))
    assert found.box_rows == 64


@BY_KERNEL
@pytest.mark.parametrize("m", [1, 8, 9, 300])
def test_a_box_of_x_has_the_tokens_that_there_are(kernel, m):
    found = kernel.tiling(asked_of(kernel, m, 4096, 64), Split(32, 1, 1))
    assert found.x_rows == min(m, kernel.tokens)


# Clusters


@pytest.mark.parametrize(("ranks", "count"), [(1, 132), (2, 66), (4, 30), (8, 15)])
def test_clusters_alone_on_their_sms_are_as_many_as_an_h200_takes(ranks, count):
    assert Split(32, ranks, 1).clusters(SMS) == count


@pytest.mark.parametrize(("ranks", "count"), [(1, 132), (2, 66), (4, 33), (8, 16)])
def test_two_ctas_an_sm_let_clusters_cover_all_sms(ranks, count):
    assert Split(32, ranks, 2).clusters(SMS) == count


@given(SPLITS, st.integers(1, 200))
def test_there_is_room_for_a_cluster_and_never_for_more_than_there_are_sms(split, sms):
    found = split.clusters(sms)
    assert found >= 1
    assert found * split.ranks <= max(sms, split.ranks)


# Splits


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, LAYOUTS, st.integers(1, 200))
def test_there_is_a_split_for_every_problem_on_a_gpu_of_any_size(kernel, m, n, k, major, sms):
    found = list(kernel.splits(asked_of(kernel, m, n, k, major), sms))
    assert found
    assert len(set(found)) == len(found)


@given(KERNELS_DRAWN, st.integers(1, 300), EIGHTS, EIGHTS, LAYOUTS, st.integers(1, 200))
def test_every_split_can_be_launched_on_a_gpu_of_any_size(kernel, m, n, k, major, sms):
    asked = asked_of(kernel, m, n, k, major)
    assert all(kernel.tiling(asked, split) is not None for split in kernel.splits(asked, sms))


def products(kernel, m):
    """Of the MLPs of Qwen-2.5: N and K of gate and up, or of the down projection."""
    for name, (hidden, intermediate) in QWEN.items():
        n, k = (intermediate, hidden) if kernel.gated else (hidden, intermediate)
        yield name, asked_of(kernel, m, n, k)


@BY_KERNEL
def test_the_best_split_of_qwens_sizes_leaves_few_multiprocessors_idle(kernel):
    """Of the bytes of weights that the SMs could read while the busiest reads its part."""
    for name, asked in products(kernel, kernel.tokens):
        shares = []
        for split in kernel.splits(asked, SMS):
            found = kernel.tiling(asked, split)
            rounds = -(-found.items // split.clusters(SMS))
            step_k = kernel.block_k * (1 if kernel.gated else 2)
            busiest = rounds * split.rows * found.steps * step_k
            shares.append(asked.n * asked.k / (SMS * busiest))
        assert max(shares) > 0.85, (name, shares)


@BY_KERNEL
@pytest.mark.parametrize("sms", [132, 114, 78])
def test_clusters_that_take_tiles_in_turns_have_as_many_each(kernel, sms):
    """But for the last few tiles, of a count that no rows give just so."""
    for name, asked in products(kernel, 1):
        for split in kernel.splits(asked, sms):
            if split.rows == decode.LEAST_ROWS:  # so few that some clusters get none
                continue
            at_once = split.clusters(sms)
            tiles = -(-asked.n // split.rows)
            rounds = -(-tiles // at_once)
            # One row less would give another round.
            assert -(-asked.n // (split.rows - 1)) > rounds * at_once, (name, split)


def test_only_one_weight_shares_k():
    for kernel in DECODE:
        ranks = {split.ranks for split in kernel.splits(asked_of(kernel, 1, 4096, 4096), SMS)}
        assert ranks == ({1} if kernel.gated else {1, 2, 4, 8})


# Estimates


@BY_KERNEL
@pytest.mark.parametrize("major", ["k", "n"])
def test_splits_come_cheapest_first(kernel, major):
    for _, asked in products(kernel, 16):
        asked = dataclasses.replace(asked, layout=Layout(major))
        found = kernel.ranked(asked, SMS)
        assert {split for _, split in found} == set(kernel.splits(asked, SMS))
        assert [us for us, _ in found] == sorted(us for us, _ in found)
        assert all(us == kernel.microseconds(asked, split, SMS) for us, split in found)


@given(KERNELS_DRAWN, st.integers(1, 128), EIGHTS, EIGHTS, LAYOUTS)
def test_no_estimate_is_less_than_reading_the_weights_takes(kernel, m, n, k, major):
    """At the rate that SMs load, and behind a launch."""
    asked = asked_of(kernel, m, n, k, major)
    weights = sum(one.rows * one.columns for one in asked.weights) * 2
    least = min(decode_cost.LAUNCH_US.values()) + weights / (LOAD_RATE * SMS)
    assert all(us >= least for us, _ in kernel.ranked(asked, SMS))


def test_more_of_k_never_costs_less():
    for kernel in DECODE:
        times = [kernel.ranked(asked_of(kernel, 1, 4096, k), SMS)[0][0]
                 for k in range(128, 8192, 512)]  # fmt: skip
        assert times == sorted(times)


# The kernel for so many tokens


@pytest.mark.parametrize(
    ("m", "tokens"),
    [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (33, 64), (65, 128), (128, 128), (1000, 128)],
)
def test_the_fitting_kernel_has_the_fewest_columns_that_hold_the_tokens_or_the_most(m, tokens):
    assert smallest_fitting(DECODE_GATED, m).tokens == tokens
    assert smallest_fitting(DECODE_GATED[::-1], m).tokens == tokens


def test_a_kernel_of_more_tokens_is_taken_where_the_fitting_one_is_not_there():
    assert smallest_fitting([of_tokens(64, gated=True), of_tokens(16, gated=True)], 8).tokens == 16
