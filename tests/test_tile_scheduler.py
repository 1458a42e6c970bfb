"""The kernels' tile scheduler, compiled for the host: every cluster is visited exactly once."""

from __future__ import annotations

import random

import numpy as np
import pytest
from host_scheduler import HostScheduler

SHAPES = [
    *[(m, n) for m in (1, 127, 128, 129, 2048, 5000) for n in (8, 96, 1000, 4864)],
    (8192, 18944),
    (131072, 128),
    (8, 131072),
]
TILES = [(128, 64), (128, 96), (256, 96), (128, 128), (128, 256), (64, 256)]


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    return HostScheduler(tmp_path_factory.mktemp("tile_scheduler"), []).walk


def expected_order(m, n, rows, columns, raster_rows):
    """Bands of `raster_rows` rows of clusters; in a band column by column, M fastest."""
    clusters_m, clusters_n = -(-m // rows), -(-n // columns)
    return [
        (row, column)
        for band in range(0, clusters_m, raster_rows)
        for column in range(clusters_n)
        for row in range(band, min(band + raster_rows, clusters_m))
    ]


@pytest.mark.parametrize("raster_rows", [1, 2, 3, 8, 16, 1000])
@pytest.mark.parametrize(("rows", "columns"), TILES)
def test_clusters_come_in_bands_with_m_fastest(walk, rows, columns, raster_rows):
    for m, n in SHAPES:
        found = walk(m, n, rows, columns, raster_rows)
        expected = expected_order(m, n, rows, columns, raster_rows)
        np.testing.assert_array_equal(found[:, :2], expected, err_msg=f"M = {m}, N = {n}")
        assert (found[:, 2] == -1).all()


@pytest.mark.parametrize("grid", [1, 2, 66, 132, 1000])
def test_persistent_clusters_share_out_every_tile_exactly_once(walk, grid):
    draw = random.Random(grid)
    for _ in range(100):
        m, n = draw.randint(1, 9000), 8 * draw.randint(1, 2000)
        (rows, columns), raster_rows = draw.choice(TILES), draw.randint(1, 40)
        clusters_m, clusters_n = -(-m // rows), -(-n // columns)
        visits = np.zeros((clusters_m, clusters_n), int)
        for first in range(grid):
            found = walk(m, n, rows, columns, raster_rows, first=first, step=grid)[:, :2]
            assert (found >= 0).all()
            assert (found < [clusters_m, clusters_n]).all()
            np.add.at(visits, tuple(found.T), 1)
        assert (visits == 1).all(), (m, n, rows, columns, raster_rows)


def test_more_clusters_than_tiles_leave_some_without_work(walk):
    assert len(walk(128, 96, 128, 96, 16, first=0, step=132)) == 1
    assert len(walk(128, 96, 128, 96, 16, first=1, step=132)) == 0


@pytest.mark.parametrize("raster_rows", [1, 3, 16])
def test_clusters_behind_the_whole_ones_come_in_the_same_order_as_two_halves_each(
    walk, raster_rows
):
    for m, n in SHAPES[:-2]:
        order = expected_order(m, n, 128, 96, raster_rows)
        for whole in {0, 1, len(order) // 2, len(order) - 1}:
            found = walk(m, n, 128, 96, raster_rows, whole)
            halves = [(*at, half) for at in order[whole:] for half in (0, 1)]
            expected = [*((*at, -1) for at in order[:whole]), *halves]
            np.testing.assert_array_equal(found, expected, err_msg=f"M = {m}, N = {n}, {whole}")


def test_more_whole_clusters_than_there_are_is_all_of_them(walk):
    np.testing.assert_array_equal(
        walk(1000, 1000, 128, 96, 4, whole=10**6), walk(1000, 1000, 128, 96, 4)
    )
