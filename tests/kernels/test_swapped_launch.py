"""Launches of kernels of exchanged operands: shared memory, TMA boxes, integers, clusters."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuswiglu.kernels.split import Split
from cuswiglu.problem import Layout
from tests.helpers.compiled import name_of
from tests.helpers.problems import problem
from tests.helpers.swapped_kernels import KERNELS, asked_of, of_cluster, qwen_3b

SMS = 132
SM_BYTES = 227 << 10
BY_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
ALONE, PAIR = of_cluster(1), of_cluster(2)
# What hypothesis draws: kernels, sizes, weights' layouts, and how many clusters run at once.
KERNEL, MAJOR = st.sampled_from(KERNELS), st.sampled_from("kn")
TOKENS = st.integers(1, 5000)
EIGHTS = st.integers(1, 3000).map(lambda count: 8 * count)
AT_ONCE = st.integers(1, SMS)


def launch_of(kernel, asked, at_once=66, raster_rows=0):
    """The launch on a device that holds so many clusters, whatever they need."""
    return kernel.launch_shape(asked, raster_rows, None, lambda cluster, shared_bytes: at_once)


# Shared memory and boxes


@BY_KERNEL
def test_at_least_three_stages_of_any_width_fit_shared_memory_and_no_more_than_there_are_barriers(
    kernel,
):
    for width in range(kernel.fewest, kernel.most + 1, 8):
        stages = kernel.stages(width)
        assert 3 <= stages <= kernel.max_stages
        assert kernel.fixed_bytes + stages * kernel.stage_bytes(width) <= SM_BYTES


@given(KERNEL, TOKENS, EIGHTS, EIGHTS, AT_ONCE, MAJOR)
def test_a_launch_fits_shared_memory_with_its_own_stages(kernel, m, n, k, at_once, major):
    shape = launch_of(kernel, asked_of(kernel, m, n, k, major), at_once)
    stage = kernel.stage_bytes(shape.integers["width"])
    assert shape.shared_bytes == kernel.fixed_bytes + shape.integers["stages"] * stage <= SM_BYTES


@given(KERNEL, TOKENS, EIGHTS, EIGHTS, AT_ONCE, MAJOR)
def test_the_boxes_of_x_of_a_cluster_hold_the_widest_columns(kernel, m, n, k, at_once, major):
    shape = launch_of(kernel, asked_of(kernel, m, n, k, major), at_once)
    _, rows, _ = shape.boxes["x"]
    width = shape.integers["width"]
    assert width <= rows * kernel.sharers < width + 8 * kernel.sharers


@given(KERNEL, TOKENS, EIGHTS, EIGHTS, AT_ONCE, MAJOR)
def test_boxes_are_of_8s_of_rows_that_tma_can_load_and_no_wider_than_their_swizzle(
    kernel, m, n, k, at_once, major
):
    shape = launch_of(kernel, asked_of(kernel, m, n, k, major), at_once)
    assert set(shape.boxes) == {"x", "w_first", "w_second", "out"}
    for inner, rows, span in shape.boxes.values():
        assert rows % 8 == 0
        assert 8 <= rows <= 256
        assert inner * 2 % 16 == 0
        assert inner * 2 <= span == 128


@BY_KERNEL
def test_boxes_of_weights_along_n_are_those_along_k_with_sides_exchanged(kernel):
    along_k, along_n = (
        launch_of(kernel, dataclasses.replace(qwen_3b(kernel, 136), layout=Layout(major)))
        for major in "kn"
    )
    rows = along_k.integers["rows"]
    assert along_k.boxes["w_first"] == along_k.boxes["w_second"] == (64, rows, 128)
    assert along_n.boxes["w_first"] == along_n.boxes["w_second"] == (rows, 64, 128)
    assert along_k.boxes["out"] == along_n.boxes["out"] == (rows, 8, 128)


# Integers, clusters, rasters


@given(KERNEL, TOKENS, EIGHTS, EIGHTS, AT_ONCE)
def test_integers_are_sizes_and_the_best_way_to_cut_in_the_kernels_order(kernel, m, n, k, at_once):
    asked = asked_of(kernel, m, n, k)
    cut, shape = kernel.best(asked, at_once), launch_of(kernel, asked, at_once, raster_rows=5)
    tokens = cut.tokens
    assert list(shape.integers.items()) == [
        *(("m", m), ("n", n), ("k", k), ("raster_rows", 5)),
        *(("columns", tokens.count), ("wide", tokens.wide), ("width", tokens.wide_width)),
        *(("whole", cut.whole), ("rows", cut.box_rows)),
        ("stages", kernel.stages(tokens.wide_width)),
    ]
    assert shape.rows == tokens


@BY_KERNEL
def test_the_integers_of_a_launch_are_those_that_entries_take(kernel):
    taken = [name for name, kind in kernel.arguments if kind == "int32"]
    given_by_the_caller = taken[taken.index("weights_ahead") :]
    assert [*launch_of(kernel, qwen_3b(kernel, 136)).integers, *given_by_the_caller] == taken


@pytest.mark.parametrize(("said", "found"), [(0, 16), (5, 5)])
def test_raster_rows_are_the_kernels_own_unless_said_otherwise(said, found):
    assert launch_of(PAIR, qwen_3b(PAIR, 300), raster_rows=said).integers["raster_rows"] == found


def test_clusters_are_as_many_as_there_are_tiles_and_halves_of_tiles_if_they_find_room():
    few = asked_of(PAIR, 136, 128 * 10, 4096)
    shape = launch_of(PAIR, few)
    numbers = PAIR.best(few, 66)
    assert shape.clusters == numbers.whole + 2 * (numbers.tiles - numbers.whole) <= 66
    assert launch_of(PAIR, few, at_once=7).clusters == 7


def test_a_launch_asks_for_room_for_its_own_clusters():
    asked = []

    def resident(cluster, shared_bytes):
        asked.append((cluster, shared_bytes))
        return 66

    PAIR.launch_shape(problem(), 0, None, resident)
    assert asked == [(2, SM_BYTES)]


def test_a_kernel_of_exchanged_operands_goes_without_a_split():
    assert PAIR.launchable(problem(), None)
    assert not PAIR.launchable(problem(), Split(8, 1, 1))


@pytest.mark.parametrize(("m", "rasters"), [(136, [16]), (2048, [16, 4])])
def test_one_raster_is_worth_measuring_where_all_tiles_run_at_once(m, rasters):
    asked = asked_of(ALONE, m, 64 * 100, 2048)
    assert [raster for raster, _ in ALONE.cuts(asked, SMS)] == rasters
