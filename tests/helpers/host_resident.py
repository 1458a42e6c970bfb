"""The scheduler of the resident kernel, compiled for the host."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.host_sources import compiled, exported, rows_written

SOURCE = """
#include "scheduler/resident.cuh"

namespace cuswiglu {

// First row, step between rows, rows in all, first column and columns of a CTA, in tiles.
int share(int m, int n, int groups, int cta, int grid, int room, int* out) {
  ResidentScheduler const scheduler(m, n, 64, 64, groups, cta, grid);
  if (room < 1) return -1;
  out[0] = scheduler.first;
  out[1] = scheduler.step;
  out[2] = scheduler.rows;
  out[3] = scheduler.column;
  out[4] = scheduler.slices;
  return 1;
}

}  // namespace cuswiglu
"""


class HostResident:
    """The scheduler, compiled in `folder` for tiles of 64 x 64."""

    def __init__(self, folder: Path) -> None:
        source = [SOURCE, exported("share", "cuswiglu::share", "m n groups cta grid")]
        self._library = compiled(folder, "resident", "\n".join(source))

    def share(self, m, n, groups, cta, grid):
        """A CTA's rows of tiles, as a range, and its columns of tiles, as another."""
        (found,) = rows_written(self._library.share, (m, n, groups, cta, grid), 5, 2)
        first, step, rows, column, slices = found.tolist()
        return range(first, rows, step), range(column, column + slices)
