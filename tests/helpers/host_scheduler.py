"""The kernels' tile scheduler, and the tile that each CTA takes from it, compiled for the host."""

from __future__ import annotations

from pathlib import Path

from cuswiglu.kernels.tile_columns import Columns
from tests.helpers.host_sources import compiled, extract, rows_written

WRAPPER = """
#include "scheduler/dense.cuh"

namespace cute {
static unsigned peer;
inline unsigned block_rank_in_cluster() { return peer; }
}
#define CUTLASS_DEVICE inline

namespace cuswiglu {
%(tile_coord)s

template <class Traits>
struct Kernel {
%(tile_of)s
};

template <int kBlockM_, int kClusterM_>
struct Traits {
  static constexpr int kBlockM = kBlockM_;
  static constexpr int kClusterM = kClusterM_;
  static constexpr int kBlockN = 0;
  static constexpr bool kFittedBoxes = true;
};

// Walks as one persistent cluster does: at(number) writes three integers.
template <class At>
int walk(TileScheduler const& scheduler, int first, int step, int room, int* visited, At at) {
  int count = 0;
  for (int number = first; number < scheduler.count(); number += step, ++count) {
    if (count == room) return -1;
    at(number, visited + 3 * count);
  }
  return count;
}
}

// The clusters' rows, first columns and widths.
extern "C" int clusters(int m, int n, int cluster_rows, int raster_rows, int wide, int wide_width,
                        int narrow_width, int first, int step, int room, int* visited) {
  cuswiglu::TileScheduler const scheduler(m, n, cluster_rows, raster_rows, wide, wide_width,
                                          narrow_width);
  return cuswiglu::walk(scheduler, first, step, room, visited, [&](int number, int* out) {
    cuswiglu::ClusterCoord const at = scheduler.coord(number);
    out[0] = at.row;
    out[1] = at.column;
    out[2] = at.width;
  });
}

// First rows, first columns and widths of the tiles of one CTA of the cluster.
template <class Traits>
int tiles(int m, int n, int raster_rows, int wide, int wide_width, int narrow_width, int first,
          int step, int peer, int room, int* visited) {
  cute::peer = unsigned(peer);
  cuswiglu::TileScheduler const scheduler(m, n, Traits::kBlockM * Traits::kClusterM, raster_rows,
                                          wide, wide_width, narrow_width);
  return cuswiglu::walk(scheduler, first, step, room, visited, [&](int number, int* out) {
    cuswiglu::TileCoord const tile = cuswiglu::Kernel<Traits>::tile_of(scheduler, number);
    out[0] = tile.m;
    out[1] = tile.n;
    out[2] = tile.box == wide_width ? tile.width : -1;  // boxes fit the launch's widest tiles
  });
}
"""


class HostScheduler:
    """The scheduler, compiled in `folder` for CTAs of (block_m, cluster_m)."""

    def __init__(self, folder: Path, shapes: list[tuple[int, int]]) -> None:
        parts = {
            "tile_coord": extract("mainloop/tile.cuh", r"struct TileCoord \{"),
            "tile_of": extract("impls/sm90_tile.cuh", r"CUTLASS_DEVICE static TileCoord tile_of\("),
        }
        source = [WRAPPER % parts, *(_tiles(*shape) for shape in shapes)]
        self._library = compiled(folder, "scheduler", "\n".join(source))

    def clusters(self, m, n, cluster_rows, raster_rows, columns: Columns, first=0, step=1):
        """(count, 3) array: the row, in clusters, the first column and the width of each."""
        arguments = (m, n, cluster_rows, raster_rows, *_cut(columns), first, step)
        room = -(-m // cluster_rows) * columns.count + 1
        return rows_written(self._library.clusters, arguments, 3, room)

    def tiles(self, shape, m, n, raster_rows, columns: Columns, first, step, peer):
        """(count, 3) array of a CTA's tiles: first row, first column, width."""
        entry = getattr(self._library, _name(*shape))
        block_m, cluster_m = shape
        arguments = (m, n, raster_rows, *_cut(columns), first, step, peer)
        room = -(-m // (block_m * cluster_m)) * columns.count + 1
        return rows_written(entry, arguments, 3, room)


def _cut(columns: Columns) -> tuple[int, int, int]:
    """What a kernel is told of its columns; it counts the narrow ones itself."""
    return columns.wide, columns.wide_width, columns.narrow_width


def _name(block_m: int, cluster_m: int) -> str:
    return f"tiles_{block_m}_{cluster_m}"


def _tiles(block_m: int, cluster_m: int) -> str:
    names = "m, n, raster_rows, wide, wide_width, narrow_width, first, step, peer, room"
    declared = ", ".join(f"int {argument}" for argument in names.split(", "))
    return (
        f'extern "C" int {_name(block_m, cluster_m)}({declared}, int* visited) {{\n'
        f"  return tiles<cuswiglu::Traits<{block_m}, {cluster_m}>>({names}, visited);\n}}\n"
    )
