"""The kernels' tile scheduler, compiled for the host: every cluster is visited exactly once."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

KERNELS = Path(__file__).resolve().parent.parent / "kernels_cu"
WRAPPER = """
#include "tile_scheduler.cuh"

// Walks as one persistent cluster does, and writes the coordinates it visits.
extern "C" int walk(int m, int n, int cluster_rows, int cluster_columns, int raster_rows, int first,
                    int step, int capacity, int* visited) {
  cuswiglu::TileScheduler const scheduler(m, n, cluster_rows, cluster_columns, raster_rows);
  int count = 0;
  for (int number = first; number < scheduler.clusters(); number += step, ++count) {
    if (count == capacity) return -1;
    cuswiglu::ClusterCoord const at = scheduler.coord(number);
    visited[2 * count] = at.m;
    visited[2 * count + 1] = at.n;
  }
  return count;
}
"""
SHAPES = [
    *[(m, n) for m in (1, 127, 128, 129, 2048, 5000) for n in (8, 96, 1000, 4864)],
    (8192, 18944),
    (131072, 128),
    (8, 131072),
]
TILES = [(128, 64), (128, 96), (256, 96), (128, 128), (128, 256), (64, 256)]


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """walk(m, n, rows, columns, raster_rows, first, step) -> (count, 2) array of (m, n)."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "this test compiles the tile scheduler: install a C++ compiler (c++)"
    folder = tmp_path_factory.mktemp("tile_scheduler")
    (folder / "walk.cpp").write_text(WRAPPER)
    options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = [compiler, *options, f"-I{KERNELS}", "walk.cpp", "-o", "walk.so"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "walk.so"))

    def visit(m, n, rows, columns, raster_rows, first=0, step=1):
        capacity = -(-m // rows) * -(-n // columns) + 1
        visited = np.full((capacity, 2), -1, np.int32)
        pointer = ctypes.c_void_p(visited.ctypes.data)
        count = library.walk(m, n, rows, columns, raster_rows, first, step, capacity, pointer)
        assert 0 <= count < capacity
        return visited[:count]

    return visit


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
        np.testing.assert_array_equal(found, expected, err_msg=f"M = {m}, N = {n}")


@pytest.mark.parametrize("grid", [1, 2, 66, 132, 1000])
def test_persistent_clusters_share_out_every_tile_exactly_once(walk, grid):
    draw = random.Random(grid)
    for _ in range(100):
        m, n = draw.randint(1, 9000), 8 * draw.randint(1, 2000)
        (rows, columns), raster_rows = draw.choice(TILES), draw.randint(1, 40)
        clusters_m, clusters_n = -(-m // rows), -(-n // columns)
        visits = np.zeros((clusters_m, clusters_n), int)
        for first in range(grid):
            found = walk(m, n, rows, columns, raster_rows, first, grid)
            assert (found >= 0).all()
            assert (found < [clusters_m, clusters_n]).all()
            np.add.at(visits, tuple(found.T), 1)
        assert (visits == 1).all(), (m, n, rows, columns, raster_rows)


def test_more_clusters_than_tiles_leave_some_without_work(walk):
    assert len(walk(128, 96, 128, 96, 16, first=0, step=132)) == 1
    assert len(walk(128, 96, 128, 96, 16, first=1, step=132)) == 0
