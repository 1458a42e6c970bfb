"""Tiles of the compiled instances: every element of the result is computed exactly once."""

from __future__ import annotations

import random

import numpy as np
import pytest
from host_scheduler import HostScheduler

from build_scripts.instances import INSTANCES

SHAPES = sorted(
    {(i.block_m, i.block_n, i.cluster_m, i.cluster_n, i.splits) for i in INSTANCES}
    | {(128, 64, 2, 1, True), (256, 32, 1, 2, True), (128, 64, 1, 1, False)}
)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    return HostScheduler(tmp_path_factory.mktemp("tile_coverage"), SHAPES)


def all_tiles(scheduler, shape, m, n, raster_rows, whole, grid):
    """Every tile that a grid of persistent clusters computes, of all their CTAs."""
    _, _, cluster_m, cluster_n, _ = shape
    found = [
        scheduler.tiles(shape, m, n, raster_rows, whole, first, grid, (peer_m, peer_n))
        for first in range(grid)
        for peer_m in range(cluster_m)
        for peer_n in range(cluster_n)
    ]
    return np.concatenate(found)


def visits(tiles, block_n, m, n):
    """How often each element of the (m, n) result is computed; TMA writes nothing beyond it."""
    count = np.zeros((m, n), np.int32)
    for row, column, rows in tiles:
        count[row : row + rows, column : column + block_n] += 1
    return count


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_every_element_is_computed_exactly_once(scheduler, shape):
    block_m, block_n, cluster_m, cluster_n, splits = shape
    draw = random.Random(str(shape))
    for _ in range(40):
        m, n = draw.randint(1, 5 * block_m), 8 * draw.randint(1, 60)
        clusters = -(-m // (block_m * cluster_m)) * -(-n // (block_n * cluster_n))
        whole = draw.choice([0, draw.randint(0, clusters), clusters]) if splits else clusters
        raster_rows, grid = draw.randint(1, 6), draw.choice([1, 2, 5, 66, clusters, 2 * clusters])
        tiles = all_tiles(scheduler, shape, m, n, raster_rows, whole, grid)
        arguments = (m, n, raster_rows, whole, grid)
        assert (visits(tiles, block_n, m, n) == 1).all(), arguments
        assert len(tiles) == (whole + 2 * (clusters - whole)) * cluster_m * cluster_n, arguments


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape[-1]], ids=lambda s: "x".join(map(str, s))
)
def test_halves_are_the_upper_and_the_lower_half_of_a_cluster(scheduler, shape):
    block_m, block_n, cluster_m, cluster_n, _ = shape
    rows, columns = block_m * cluster_m, block_n * cluster_n
    for cluster, (m, n) in enumerate([(0, 0), (rows, 0), (0, columns), (rows, columns)]):
        for half in (0, 1):
            tiles = all_tiles_of_number(scheduler, shape, 2 * cluster + half)
            assert (tiles[:, 2] == block_m // 2).all()
            covered = visits(tiles, block_n, 2 * rows, 2 * columns)
            expected = np.zeros_like(covered)
            first = m + half * rows // 2
            expected[first : first + rows // 2, n : n + columns] = 1
            np.testing.assert_array_equal(covered, expected)


def all_tiles_of_number(scheduler, shape, number):
    """The tiles of one number among 2 x 2 clusters that are all halved."""
    block_m, block_n, cluster_m, cluster_n, _ = shape
    m, n = 2 * block_m * cluster_m, 2 * block_n * cluster_n
    peers = [(a, b) for a in range(cluster_m) for b in range(cluster_n)]
    found = [scheduler.tiles(shape, m, n, 16, 0, number, 1000, peer) for peer in peers]
    return np.concatenate(found)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_whole_tiles_have_all_rows(scheduler, shape):
    block_m, _, cluster_m, _, _ = shape
    m, n = 3 * block_m * cluster_m + 1, 200
    tiles = all_tiles(scheduler, shape, m, n, 2, 10**6, 3)
    assert (tiles[:, 2] == block_m).all()
