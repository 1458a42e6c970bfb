"""The scheduler of kernels of exchanged operands, compiled for the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cuswiglu.kernels.swapped import Slicing
from cuswiglu.kernels.tile_columns import Cut
from tests.helpers.host_sources import compiled, exported, rows_written

SOURCE = """
#include "scheduler/swapped.cuh"

namespace cuswiglu {

// The tiles of one CTA of a persistent cluster: block, first token, tokens, whether cut along K.
int tiles(int cluster_rows, int columns, int wide, int width, int raster_rows, int whole,
          int cluster, int first, int step, int rank, int room, int* rows) {
  SwappedScheduler const scheduler{cluster_rows, columns, wide, width, raster_rows, whole, cluster};
  int count = 0;
  for (int number = first; number < scheduler.count(); number += step, ++count) {
    if (count == room) return -1;
    SwappedTile const tile = scheduler.tile(number, rank);
    int* const out = rows + 4 * count;
    out[0] = tile.block;
    out[1] = tile.token;
    out[2] = tile.tokens;
    out[3] = tile.split;
  }
  return count;
}

}  // namespace cuswiglu
"""


@dataclass(frozen=True)
class Launch:
    """What a scheduler is told: rows of clusters, columns of tokens, and where K is cut.

    The clusters are of `cluster` CTAs, and the first `whole` of their tiles are not cut along K.
    """

    rows: int
    tokens: Cut
    raster_rows: int
    whole: int
    cluster: int

    @property
    def tiles(self) -> int:
        """Of a cluster."""
        return self.rows * self.tokens.count

    @classmethod
    def of(cls, cut: Slicing, raster_rows: int, cluster: int) -> Launch:
        """The launch of a problem that is cut so."""
        return cls(cut.tiles // cut.tokens.count, cut.tokens, raster_rows, cut.whole, cluster)


class HostSwapped:
    """The scheduler, compiled in `folder`."""

    def __init__(self, folder: Path) -> None:
        arguments = "cluster_rows columns wide width raster_rows whole cluster first step rank"
        source = [SOURCE, exported("tiles", "cuswiglu::tiles", arguments)]
        self._library = compiled(folder, "swapped", "\n".join(source))

    def tiles(self, launch: Launch, first=0, step=1, rank=0):
        """(count, 4) array of a CTA's tiles: feature block, first token, tokens, cut along K."""
        tokens = launch.tokens
        arguments = (
            *(launch.rows, tokens.count, tokens.wide, tokens.wide_width, launch.raster_rows),
            *(launch.whole, launch.cluster, first, step, rank),
        )
        room = launch.tiles * launch.cluster + 1
        return rows_written(self._library.tiles, arguments, 4, room)
