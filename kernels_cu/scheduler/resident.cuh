// Which tiles a CTA of the resident kernel computes. Plain integer code: compiles for the host too.
//
// Columns of tiles are cut into groups, as equal as can be, whose weights a CTA keeps. CTAs are
// numbered so that those of one row of tiles, one of each group, follow each other: they read the
// same rows of X at about the same time. A CTA takes every `step`th row of tiles.
#pragma once

#include "common/host_device.cuh"

namespace cuswiglu {

struct ResidentScheduler {
  int rows;   // of tiles
  int first;  // this CTA's first row of tiles
  int step;
  int column;  // its first column, in tiles
  int slices;  // its columns of tiles

  // tile_rows, tile_columns: elements of a tile. grid: a multiple of the number of groups.
  CUSWIGLU_HOST_DEVICE ResidentScheduler(int m, int n, int tile_rows, int tile_columns, int groups,
                                         int cta, int grid)
      : rows((m + tile_rows - 1) / tile_rows) {
    int const columns = (n + tile_columns - 1) / tile_columns;
    int const group = cta % groups;
    first = cta / groups;
    step = grid / groups;
    int const fewest = columns / groups, more = columns % groups;  // the first groups have one more
    column = group * fewest + (group < more ? group : more);
    slices = fewest + (group < more ? 1 : 0);
  }
};

}  // namespace cuswiglu
