"""The kernels' tile scheduler, compiled for the host: every tile is visited exactly once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cuswiglu.kernels.tile_columns import Cut, best, uniform
from tests.helpers.host_scheduler import HostScheduler

#: (M, N, columns): one width, two, and only one column of either.
CUTS = [
    *[(m, n, uniform(n, 96)) for m in (1, 127, 128, 129, 5000) for n in (8, 96, 1000, 4864)],
    (2048, 1000, Cut(3, 96, narrow=9, narrow_width=80)),
    (2048, 1000, Cut(9, 96, narrow=2, narrow_width=72)),
    (2048, 1008, Cut(9, 96, narrow=2, narrow_width=72)),
    (5000, 184, Cut(1, 96, narrow=1, narrow_width=88)),
    (100, 4864, Cut(1, 96, narrow=75, narrow_width=64)),
    (8192, 18944, Cut(119, 96, narrow=94, narrow_width=80)),
    (131072, 128, uniform(128, 64)),
    (8, 131072, Cut(700, 128, narrow=432, narrow_width=96)),
]
ROWS = [64, 128, 256]  # of a cluster


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    return HostScheduler(tmp_path_factory.mktemp("tile_scheduler"), []).clusters


def in_bands(rows, raster_rows, first_columns, width):
    """Bands of `raster_rows` rows of clusters; in a band column by column, M fastest."""
    return [
        (row, column, width)
        for band in range(0, rows, raster_rows)
        for column in first_columns
        for row in range(band, min(band + raster_rows, rows))
    ]


def expected_order(m, cluster_rows, raster_rows, columns):
    """All wide columns in bands, then all narrow ones."""
    rows = -(-m // cluster_rows)
    narrow_from = columns.wide * columns.wide_width
    wide = range(0, narrow_from, columns.wide_width)
    narrow = [narrow_from + i * columns.narrow_width for i in range(columns.narrow)]
    return [
        *in_bands(rows, raster_rows, wide, columns.wide_width),
        *in_bands(rows, raster_rows, narrow, columns.narrow_width),
    ]


@pytest.mark.parametrize("raster_rows", [1, 2, 3, 8, 16, 1000])
@pytest.mark.parametrize("cluster_rows", ROWS)
def test_wide_tiles_come_in_bands_with_m_fastest_and_narrow_ones_behind_them_all(
    clusters, cluster_rows, raster_rows
):
    for m, n, columns in CUTS:
        found = clusters(m, n, cluster_rows, raster_rows, columns)
        expected = expected_order(m, cluster_rows, raster_rows, columns)
        np.testing.assert_array_equal(found, expected, err_msg=f"M = {m}, N = {n}, {columns}")


@pytest.mark.parametrize("grid", [1, 2, 66, 132, 1000])
def test_persistent_clusters_share_out_every_tile_exactly_once(clusters, grid):
    draw = random.Random(grid)
    for _ in range(100):
        m, n = draw.randint(1, 9000), 8 * draw.randint(1, 2000)
        cluster_rows, raster_rows = draw.choice(ROWS), draw.randint(1, 40)
        rows = -(-m // cluster_rows)
        columns = best(n, rows, grid, draw.choice([(96, 88, 80, 72, 64), (192, 160), (128,)]))
        visits = np.zeros((rows, n), int)
        for first in range(grid):
            for row, column, width in clusters(
                m, n, cluster_rows, raster_rows, columns, first, grid
            ):
                assert 0 <= row < rows
                assert 0 <= column < n
                visits[row, column : column + width] += 1
        assert (visits == 1).all(), (m, n, cluster_rows, raster_rows, columns)


def test_more_clusters_than_tiles_leave_some_without_work(clusters):
    arguments = (128, 96, 128, 16, uniform(96, 96))
    assert len(clusters(*arguments, first=0, step=132)) == 1
    assert len(clusters(*arguments, first=1, step=132)) == 0
