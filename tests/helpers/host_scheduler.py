"""The kernels' tile scheduler, and the tile that each CTA takes from it, compiled for the host."""

from __future__ import annotations

from pathlib import Path

from cuswiglu.kernels.tile_columns import Cut
from tests.helpers.host_sources import compiled, exported, rows_written

SOURCE = """
#include "families.cuh"
#include "operands/dense.cuh"

namespace cuswiglu {

// Walks as one persistent cluster does: at(number) writes three integers.
template <class At>
int walk(DenseScheduler const& scheduler, int first, int step, int room, int* rows, At at) {
  int count = 0;
  for (int number = first; number < scheduler.count(); number += step, ++count) {
    if (count == room) return -1;
    at(number, rows + 3 * count);
  }
  return count;
}

// The clusters' rows, first columns and widths.
int clusters(int m, int n, int cluster_rows, int raster_rows, int wide, int wide_width,
             int narrow_width, int first, int step, int room, int* rows) {
  DenseScheduler const scheduler(m, n, cluster_rows, raster_rows, wide, wide_width, narrow_width);
  return walk(scheduler, first, step, room, rows, [&](int number, int* out) {
    ClusterCoord const at = scheduler.coord(number);
    out[0] = at.row;
    out[1] = at.column;
    out[2] = at.width;
  });
}

// First rows, first columns and widths of the tiles of one CTA of the cluster.
template <int kBlockM, int kClusterM>
int tiles(int m, int n, int raster_rows, int wide, int wide_width, int narrow_width, int first,
          int step, int peer, int room, int* rows) {
  using Sizes = TileSizes<Dual, Schedule::Pingpong, kBlockM, 32, kClusterM, 2, 2, Major::K, 0,
                          kClusterM <= 2 ? 8 : 0, kClusterM <= 2 ? 16 : 32>;
  DenseScheduler const scheduler(m, n, kBlockM * kClusterM, raster_rows, wide, wide_width,
                                 narrow_width);
  return walk(scheduler, first, step, room, rows, [&](int number, int* out) {
    TileCoord const tile = DenseOperands<Sizes>::tile(scheduler.coord(number), wide_width,
                                                      [=] { return peer; });
    // Where boxes fit a launch's widest tiles, they are as wide.
    bool const fits = tile.box == (Sizes::kFittedBoxes ? wide_width : Sizes::kBlockN);
    out[0] = tile.m;
    out[1] = tile.n;
    out[2] = fits ? tile.width : -1;
  });
}

}  // namespace cuswiglu
"""


class HostScheduler:
    """The scheduler, compiled in `folder` for CTAs of (block_m, cluster_m)."""

    def __init__(self, folder: Path, shapes: list[tuple[int, int]]) -> None:
        cut = "wide wide_width narrow_width"
        source = [
            SOURCE,
            exported(
                "clusters",
                "cuswiglu::clusters",
                f"m n cluster_rows raster_rows {cut} first step",
            ),
        ]
        for block_m, cluster_m in shapes:
            called = f"cuswiglu::tiles<{block_m}, {cluster_m}>"
            arguments = f"m n raster_rows {cut} first step peer"
            source.append(exported(f"tiles_{block_m}_{cluster_m}", called, arguments))
        self._library = compiled(folder, "scheduler", "\n".join(source))

    def clusters(self, m, n, cluster_rows, raster_rows, columns: Cut, first=0, step=1):
        """(count, 3) array: the row, in clusters, the first column and the width of each."""
        arguments = (m, n, cluster_rows, raster_rows, *_cut(columns), first, step)
        room = -(-m // cluster_rows) * columns.count + 1
        return rows_written(self._library.clusters, arguments, 3, room)

    def tiles(self, shape, m, n, raster_rows, columns: Cut, first, step, peer):
        """(count, 3) array of a CTA's tiles: first row, first column, width."""
        block_m, cluster_m = shape
        entry = getattr(self._library, f"tiles_{block_m}_{cluster_m}")
        arguments = (m, n, raster_rows, *_cut(columns), first, step, peer)
        room = -(-m // (block_m * cluster_m)) * columns.count + 1
        return rows_written(entry, arguments, 3, room)


def _cut(columns: Cut) -> tuple[int, int, int]:
    """What a kernel is told of its columns; it counts the narrow ones itself."""
    return columns.wide, columns.wide_width, columns.narrow_width
