"""The kernels' tile scheduler, and the tile that each CTA takes from it, compiled for the host."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np

KERNELS = Path(__file__).resolve().parent.parent / "kernels_cu"
WRAPPER = """
#include "tile_scheduler.cuh"

struct dim3 { unsigned x, y, z; };
namespace cute {
static dim3 peer;
inline dim3 block_id_in_cluster() { return peer; }
}
#define CUTLASS_DEVICE inline

namespace cuswiglu {
%(tile_coord)s

template <class Traits>
struct Kernel {
%(tile_of)s
};

template <int kBlockM_, int kBlockN_, int kClusterM_, int kClusterN_, bool kSplits_>
struct Traits {
  static constexpr int kBlockM = kBlockM_;
  static constexpr int kBlockN = kBlockN_;
  static constexpr int kClusterM = kClusterM_;
  static constexpr int kClusterN = kClusterN_;
  static constexpr bool kSplits = kSplits_;
};
}

// Walks as one persistent cluster does, and writes the coordinates it visits.
extern "C" int walk(int m, int n, int cluster_rows, int cluster_columns, int raster_rows, int whole,
                    int first, int step, int capacity, int* visited) {
  cuswiglu::TileScheduler const scheduler(m, n, cluster_rows, cluster_columns, raster_rows, whole);
  int count = 0;
  for (int number = first; number < scheduler.count(); number += step, ++count) {
    if (count == capacity) return -1;
    cuswiglu::ClusterCoord const at = scheduler.coord(number);
    visited[3 * count] = at.m;
    visited[3 * count + 1] = at.n;
    visited[3 * count + 2] = at.half;
  }
  return count;
}

// As walk, but writes the first row, first column and rows of the tiles of one CTA of the cluster.
template <class Traits>
int walk_tiles(int m, int n, int raster_rows, int whole, int first, int step, int peer_m,
               int peer_n, int capacity, int* visited) {
  cute::peer = {unsigned(peer_m), unsigned(peer_n), 0};
  cuswiglu::TileScheduler const scheduler(m, n, Traits::kBlockM * Traits::kClusterM,
                                          Traits::kBlockN * Traits::kClusterN, raster_rows, whole);
  int count = 0;
  for (int number = first; number < scheduler.count(); number += step, ++count) {
    if (count == capacity) return -1;
    cuswiglu::TileCoord const tile = cuswiglu::Kernel<Traits>::tile_of(scheduler, number);
    visited[3 * count] = tile.m;
    visited[3 * count + 1] = tile.n;
    visited[3 * count + 2] = tile.rows;
  }
  return count;
}
"""


def _extract(file: str, pattern: str) -> str:
    """A piece of a kernel's source, from a line that matches to the next `}` as far left."""
    source = (KERNELS / file).read_text()
    found = re.search(rf"^( *){pattern}.*?^\1}};?$", source, re.MULTILINE | re.DOTALL)
    assert found, f"{file} no longer has {pattern!r}: adapt tests/host_scheduler.py"
    return found[0]


class HostScheduler:
    """The scheduler, compiled in `folder` for shapes of (block_m, block_n, cm, cn, splits)."""

    def __init__(self, folder: Path, shapes: list[tuple]) -> None:
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert compiler, "this test compiles the tile scheduler: install a C++ compiler (c++)"
        self._entries = {shape: f"tiles_{number}" for number, shape in enumerate(shapes)}
        parts = {
            "tile_coord": _extract("mainloop.cuh", r"struct TileCoord \{"),
            "tile_of": _extract("kernel.cuh", r"CUTLASS_DEVICE static TileCoord tile_of\("),
        }
        source = [WRAPPER % parts, *(_tiles(name, s) for s, name in self._entries.items())]
        (folder / "walk.cpp").write_text("\n".join(source))
        options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        command = [compiler, *options, f"-I{KERNELS}", "walk.cpp", "-o", "walk.so"]
        subprocess.run(command, cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "walk.so"))

    def walk(self, m, n, rows, columns, raster_rows, whole=None, first=0, step=1):
        """(count, 3) array of the clusters' (m, n, half); all of them whole by default."""
        clusters = -(-m // rows) * -(-n // columns)
        whole = clusters if whole is None else whole
        arguments = (m, n, rows, columns, raster_rows, whole, first, step)
        return self._visited(self._library.walk, arguments, 2 * clusters + 1)

    def tiles(self, shape, m, n, raster_rows, whole, first, step, peer):
        """(count, 3) array of a CTA's tiles: first row, first column, rows."""
        entry = getattr(self._library, self._entries[shape])
        block_m, block_n, cluster_m, cluster_n, _ = shape
        clusters = -(-m // (block_m * cluster_m)) * -(-n // (block_n * cluster_n))
        arguments = (m, n, raster_rows, whole, first, step, *peer)
        return self._visited(entry, arguments, 2 * clusters + 1)

    def _visited(self, function, arguments, capacity):
        visited = np.full((capacity, 3), -99, np.int32)
        count = function(*arguments, capacity, ctypes.c_void_p(visited.ctypes.data))
        assert 0 <= count < capacity
        return visited[:count]


def _tiles(name: str, shape: tuple) -> str:
    arguments = ", ".join(str(int(value)) for value in shape)
    names = "m, n, raster_rows, whole, first, step, peer_m, peer_n, capacity"
    declared = ", ".join(f"int {argument}" for argument in names.split(", "))
    return (
        f'extern "C" int {name}({declared}, int* visited) {{\n'
        f"  return walk_tiles<cuswiglu::Traits<{arguments}>>({names}, visited);\n}}\n"
    )
