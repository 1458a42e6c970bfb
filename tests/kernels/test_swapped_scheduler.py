"""The scheduler of kernels of exchanged operands, compiled for the host: every tile once."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from cuswiglu.kernels.tile_columns import Cut
from tests.helpers.host_swapped import HostSwapped, Launch
from tests.helpers.problems import problem
from tests.helpers.swapped_kernels import of_cluster

PROBLEM = problem()
STEP = 8  # tokens
GRIDS = pytest.mark.parametrize("grid", [1, 2, 66, 132])
CLUSTERS = pytest.mark.parametrize("cluster", [1, 2])
#: One width of columns, two, and only one column of either.
CUTS = [
    Cut(1, 64, narrow=0, narrow_width=64),
    Cut(4, 208, narrow=0, narrow_width=200),
    Cut(1, 72, narrow=1, narrow_width=64),
    Cut(3, 136, narrow=5, narrow_width=128),
]


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    return HostSwapped(tmp_path_factory.mktemp("swapped_scheduler")).tiles


def drawn(draw, cluster, at_once):
    """A problem of any size, cut in any way that the kernel can do."""
    kernel = of_cluster(cluster)
    m, n, k = draw.randint(1, 3000), 8 * draw.randint(1, 1500), 8 * draw.randint(1, 1500)
    least = -(-m // kernel.most)
    tokens = kernel.tokens(m, draw.randint(least, 2 * least + 2))
    asked = dataclasses.replace(PROBLEM, m=m, n=n, k=k)
    cut = kernel.slicing(asked, tokens, draw.choice((64, 56, 48, 40)), at_once)
    return Launch.of(cut, draw.randint(1, 40), cluster)


def drawn_with_a_cut_along_k(draw, at_once):
    """The same, if the last wave of it is cut along K."""
    while True:
        launch = drawn(draw, 2, at_once)
        if launch.whole < launch.tiles:
            return launch


def visits_of(tiles, launch, grid):
    """How often all clusters compute a block's step of tokens: (blocks, steps) array.

    A tile that is cut along K counts once for its cluster.
    """
    tokens = launch.tokens
    covered = tokens.wide * tokens.wide_width + tokens.narrow * tokens.narrow_width
    visits = np.zeros((launch.rows * launch.cluster, covered // STEP), int)
    for first in range(grid):
        for rank in range(launch.cluster):
            for block, token, count, split in tiles(launch, first, grid, rank):
                assert 0 <= block < len(visits)
                assert 0 <= token < token + count <= covered
                if not split or rank == 0:
                    visits[block, token // STEP : (token + count) // STEP] += 1
    return visits


# Coverage


@CLUSTERS
@GRIDS
def test_persistent_clusters_share_out_every_tile_exactly_once(tiles, grid, cluster):
    draw = random.Random(grid)
    for _ in range(20):
        launch = drawn(draw, cluster, grid)
        launch = dataclasses.replace(launch, whole=launch.tiles)
        assert (visits_of(tiles, launch, grid) == 1).all(), launch


@pytest.mark.parametrize("grid", [2, 66, 132])
def test_tiles_cut_along_k_are_shared_out_exactly_once_too(tiles, grid):
    draw = random.Random(grid)
    for _ in range(20):
        launch = drawn_with_a_cut_along_k(draw, grid)
        assert (visits_of(tiles, launch, grid) == 1).all(), launch


def test_a_cut_along_k_from_any_tile_on_loses_none(tiles):
    for whole in range(7):
        launch = Launch(rows=3, tokens=CUTS[2], raster_rows=2, whole=whole, cluster=2)
        assert (visits_of(tiles, launch, 5) == 1).all(), launch


@CLUSTERS
def test_more_clusters_than_tiles_leave_some_without_work(tiles, cluster):
    launch = Launch(rows=3, tokens=CUTS[2], raster_rows=16, whole=6, cluster=cluster)
    assert [len(tiles(launch, first, 132)) for first in (0, 5, 6, 131)] == [1, 1, 0, 0]


# Tiles that are cut along K


def test_the_ctas_of_a_cluster_lie_side_by_side_along_n_in_a_whole_tile(tiles):
    launch = Launch(rows=9, tokens=CUTS[3], raster_rows=4, whole=72, cluster=2)
    first, second = (tiles(launch, rank=rank) for rank in (0, 1))
    np.testing.assert_array_equal(second, first + np.array([1, 0, 0, 0]))
    assert (first[:, 0] % 2 == 0).all()


def test_the_ctas_of_a_cluster_compute_the_same_tile_if_it_is_cut_along_k(tiles):
    launch = Launch(rows=9, tokens=CUTS[3], raster_rows=4, whole=66, cluster=2)
    first, second = (tiles(launch, rank=rank)[66:] for rank in (0, 1))
    np.testing.assert_array_equal(first, second)
    assert len(first) == 2 * (72 - 66)


def test_numbers_from_whole_on_and_no_others_are_cut_along_k(tiles):
    launch = Launch(rows=9, tokens=CUTS[3], raster_rows=4, whole=66, cluster=2)
    assert tiles(launch)[:, 3].tolist() == [0] * 66 + [1] * 12


def test_tiles_cut_along_k_are_those_that_would_have_come_last(tiles):
    whole = Launch(rows=9, tokens=CUTS[3], raster_rows=4, whole=72, cluster=2)
    cut = dataclasses.replace(whole, whole=66)
    expected = [
        tile[:3].tolist()
        for numbers in zip(*(tiles(whole, rank=rank)[66:] for rank in (0, 1)), strict=True)
        for tile in numbers
    ]
    assert tiles(cut)[66:, :3].tolist() == expected


@pytest.mark.parametrize("grid", [2, 66, 132])
def test_a_cluster_gets_at_most_one_tile_that_is_cut_along_k_and_gets_it_last(tiles, grid):
    draw = random.Random(grid)
    for _ in range(20):
        launch = drawn_with_a_cut_along_k(draw, grid)
        for first in range(grid):
            split = tiles(launch, first, grid)[:, 3]
            assert not split[:-1].any(), launch


# Order and widths


def expected_order(launch):
    """Bands of `raster_rows` rows; inside a band column by column, rows fastest."""
    cut = launch.tokens
    widths = [cut.wide_width] * cut.wide + [cut.narrow_width] * cut.narrow
    return [
        (row * launch.cluster, sum(widths[:column]), width, 0)
        for band in range(0, launch.rows, launch.raster_rows)
        for column, width in enumerate(widths)
        for row in range(band, min(band + launch.raster_rows, launch.rows))
    ]


@CLUSTERS
@pytest.mark.parametrize("raster_rows", [1, 2, 3, 4, 16, 1000])
def test_rows_come_in_bands_and_inside_one_faster_than_columns(tiles, raster_rows, cluster):
    for tokens in CUTS:
        for rows in (1, 2, 7, 16, 33):
            launch = Launch(rows, tokens, raster_rows, rows * tokens.count, cluster)
            np.testing.assert_array_equal(tiles(launch), expected_order(launch), f"{launch}")


def test_the_first_columns_are_wide_and_the_others_have_8_tokens_less(tiles):
    launch = Launch(rows=1, tokens=Cut(2, 136, 3, 128), raster_rows=1, whole=5, cluster=1)
    found = tiles(launch)[:, 1:3].tolist()
    assert found == [[0, 136], [136, 136], [272, 128], [400, 128], [528, 128]]
