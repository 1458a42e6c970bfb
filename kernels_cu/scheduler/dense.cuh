// Which output tile comes when. Plain integer code: compiles for the host too.
//
// The [M, N] result is cut into rows of clusters, and into columns of tiles: `wide` columns of
// wide_width, and behind them columns of narrow_width as far as N goes. Two widths let waves come
// out even where one would leave the last wave half empty.
//
// Clusters are numbered so that `raster_rows` rows of clusters are walked, M fastest, before the
// next column begins: the CTAs that run at the same time then share few rows of X and few columns
// of the weights, and both stay in L2. All wide tiles come before all narrow ones. Persistent
// clusters take numbers first, first + grid, first + 2 grid, ...
#pragma once

#include "scheduler/bands.cuh"

namespace cuswiglu {

// A cluster's place: its row, in clusters; its first column and its width, in elements.
struct ClusterCoord {
  int row;
  int column;
  int width;
};

struct DenseScheduler {
  int rows;
  int columns;
  int raster_rows;
  int wide;
  int wide_width;
  int narrow_width;

  // cluster_rows: elements of M that a cluster computes. wide: at most what N needs.
  CUSWIGLU_HOST_DEVICE DenseScheduler(int m, int n, int cluster_rows, int raster_rows_, int wide_,
                                      int wide_width_, int narrow_width_)
      : rows((m + cluster_rows - 1) / cluster_rows),
        columns(wide_ + (n - wide_ * wide_width_ + narrow_width_ - 1) / narrow_width_),
        raster_rows(raster_rows_ < rows ? raster_rows_ : rows),
        wide(wide_),
        wide_width(wide_width_),
        narrow_width(narrow_width_) {}

  // Number of clusters of tiles.
  CUSWIGLU_HOST_DEVICE int count() const { return rows * columns; }

  CUSWIGLU_HOST_DEVICE ClusterCoord coord(int number) const {
    bool const narrow = number >= rows * wide;
    if (narrow) number -= rows * wide;
    Place const at = place_in_bands(number, rows, narrow ? columns - wide : wide, raster_rows);
    if (narrow) return {at.row, wide * wide_width + at.column * narrow_width, narrow_width};
    return {at.row, at.column * wide_width, wide_width};
  }
};

}  // namespace cuswiglu
