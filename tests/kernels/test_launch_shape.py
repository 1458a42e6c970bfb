"""Launch shapes: what a launch is made of, for as many clusters as a device is said to hold."""

from __future__ import annotations

import dataclasses

import pytest

from cuswiglu.kernels.split import Split
from cuswiglu.kernels.tile_columns import uniform
from tests.helpers.compiled import DECODE_GATED, DECODE_PLAIN, GATED, made_up
from tests.helpers.problems import plain_problem, problem

TILES = made_up(block_m=128, block_n=96, cluster_m=2, raster_rows=16,
                widths=(("k", (96,)),))  # fmt: skip


def at_once(count):
    """A device on which so many clusters run at once, whatever they need."""
    return lambda cluster, shared_bytes: count


def test_clusters_of_tiles_are_as_many_as_there_are_tiles_if_they_all_find_room():
    asked = problem(m=512, n=960)
    assert TILES.launch_shape(asked, 0, None, at_once(66)).clusters == 2 * 10
    assert TILES.launch_shape(asked, 0, None, at_once(7)).clusters == 7


def test_a_launch_of_tiles_asks_for_room_for_its_own_clusters():
    asked = []

    def resident(cluster, shared_bytes):
        asked.append((cluster, shared_bytes))
        return 66

    TILES.launch_shape(problem(), 0, None, resident)
    assert asked == [(TILES.cluster_m, TILES.shared_bytes)]


@pytest.mark.parametrize(("given", "found"), [(0, 16), (5, 5)])
def test_raster_rows_are_the_kernels_own_unless_said_otherwise(given, found):
    shape = TILES.launch_shape(problem(), given, None, at_once(66))
    assert shape.integers["raster_rows"] == found


def test_integers_of_tiles_are_sizes_and_columns_in_the_kernels_order():
    shape = TILES.launch_shape(problem(m=300, n=200, k=136), 4, None, at_once(66))
    assert list(shape.integers.items()) == [
        *(("m", 300), ("n", 200), ("k", 136), ("raster_rows", 4)),
        *(("wide", 3), ("wide_width", 96), ("narrow_width", 96)),
    ]


def test_integers_of_a_decode_kernel_are_sizes_and_its_split_in_the_kernels_order():
    kernel, asked = DECODE_GATED[1], problem(m=5, n=4864, k=896)
    split = Split(24, 1, 1)
    shape = kernel.launch_shape(asked, 0, split, at_once(132))
    assert list(shape.integers.items()) == [
        *(("m", 5), ("n", 4864), ("k", 896), ("out_stride", 4864), ("rows", 24)),
        ("stages", kernel.tiling(asked, split).stages),
    ]
    assert shape.columns == uniform(4864, 24)


def test_a_decode_kernel_writes_out_without_a_descriptor():
    shape = DECODE_GATED[0].launch_shape(problem(m=1), 0, Split(8, 1, 1), at_once(132))
    assert set(shape.boxes) == {"x", "w_first", "w_second"}


@pytest.mark.parametrize(("beside", "clusters"), [(140, 140), (139, 132)])
def test_a_few_more_clusters_than_run_alone_take_all_tiles_at_once_beside_others(beside, clusters):
    kernel, asked = DECODE_GATED[0], problem(m=1, n=140 * 8, k=128)

    def resident(cluster, shared_bytes):
        return 132 if shared_bytes == kernel.most_shared else beside

    shape = kernel.launch_shape(asked, 0, Split(8, 1, 2), resident)
    assert shape.clusters == clusters


def test_a_decode_kernel_cannot_be_launched_without_a_split_or_with_one_beyond_a_limit():
    asked = plain_problem(m=1)
    for split in (None, Split(129, 1, 1)):
        with pytest.raises(ValueError, match="cannot be launched with"):
            DECODE_PLAIN[0].launch_shape(asked, 0, split, at_once(132))
        assert not DECODE_PLAIN[0].launchable(asked, split)


def test_a_kernel_of_tiles_goes_without_a_split():
    assert GATED[0].launchable(problem(), None)
    assert not GATED[0].launchable(problem(), Split(8, 1, 1))


def test_one_raster_is_worth_measuring_where_all_tiles_run_at_once():
    few, many = (dataclasses.replace(problem(), m=m, n=960) for m in (256, 8192))
    assert [raster for raster, _ in TILES.cuts(few, 132)] == [16]
    assert [raster for raster, _ in TILES.cuts(many, 132)] == [16, 8, 4]
