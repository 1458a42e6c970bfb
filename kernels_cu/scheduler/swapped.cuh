// Which tile of a swapped kernel comes when. Plain integer code: compiles for the host too.
//
// Tokens are cut into `columns` nearly equal columns: the first `wide` have `width` tokens, the
// others a step less. Features are cut into rows of clusters. Clusters are numbered so that
// `raster_rows` rows are walked, all of their columns, before the next rows begin; inside such a
// band, rows come faster than columns: the CTAs that run at the same time then share few rows of X
// and few columns of the weights, and weights are read from memory once.
//
// The last wave may leave most clusters without work. Then its tiles are cut along K too: of the
// numbers from `whole` on, each stands for the tile of one CTA, which all CTAs of a cluster
// compute, each a part of K. A cluster gets at most one of those, behind all others.
#pragma once

#include "scheduler/bands.cuh"

namespace cuswiglu {

// A CTA's tile: its first feature block (of a tile's features), first token, tokens; and whether
// the cluster's CTAs share it along K.
struct SwappedTile {
  int block;
  int token;
  int tokens;
  bool split;
};

struct SwappedScheduler {
  static constexpr int kStep = 8;  // tokens

  int rows;  // of clusters
  int columns;
  int wide;
  int width;
  int raster_rows;
  int whole;
  int cluster;

  // Number of what clusters take.
  CUSWIGLU_HOST_DEVICE int count() const { return whole + (rows * columns - whole) * cluster; }

  // What the CTA of a rank in the cluster computes.
  CUSWIGLU_HOST_DEVICE SwappedTile tile(int number, int rank) const {
    bool const split = number >= whole;
    if (split) {
      int const behind = number - whole;
      number = whole + behind / cluster;
      rank = behind % cluster;
    }
    Place const at = place_in_bands(number, rows, columns, raster_rows);
    int const narrow = at.column < wide ? 0 : at.column - wide;
    return {at.row * cluster + rank, at.column * width - narrow * kStep,
            at.column < wide ? width : width - kStep, split};
  }
};

}  // namespace cuswiglu
