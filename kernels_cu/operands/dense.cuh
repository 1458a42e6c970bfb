// Dense operands of a tile kernel: which TMA boxes of weights a CTA loads, and where in a stage
// they go. Plain integer code: compiles for the host too.
#pragma once

#include "common/host_device.cuh"
#include "impls/sm90_tile_sizes.cuh"
#include "scheduler/dense.cuh"

namespace cuswiglu {

// A CTA's tile of the result: its first row and column, its width, and the columns of its boxes of
// one weight, at least as many.
struct TileCoord {
  int m;
  int n;
  int width;
  int box;
};

// Sizes: a TileSizes. rank() is the CTA's in its cluster, asked for only where it matters.
template <class Sizes>
struct DenseOperands {
  // This CTA's tile of a cluster's.
  template <class Rank>
  CUSWIGLU_HOST_DEVICE static TileCoord tile(ClusterCoord cluster, int wide_width, Rank rank) {
    int const peer = Sizes::kClusterM > 1 ? rank() : 0;
    int const m = (cluster.row * Sizes::kClusterM + peer) * Sizes::kBlockM;
    int const box = Sizes::kFittedBoxes ? wide_width : Sizes::kBlockN;
    return {m, cluster.column, cluster.width, box};
  }

  // box(offset in shared memory, coordinate along the contiguous dimension, the other): the boxes
  // of one weight that this CTA loads, of kWeightN columns from n on.
  template <class Rank, class Box>
  CUSWIGLU_HOST_DEVICE static void each_box(int n, int k, Rank rank, Box box) {
    int const slice = Sizes::kSlices > 1 ? rank() : 0;
    if constexpr (Sizes::kMajorB == Major::K) {
      constexpr int kSlice = Sizes::kWeightN / Sizes::kSlices;  // rows of 64 along K
      box(slice * kSlice * Sizes::kBlockK, k, n + slice * kSlice);
    } else {
      constexpr int kSlice = Sizes::kBlockK / Sizes::kSlices;  // rows of kBoxN along N
      CUSWIGLU_UNROLL
      for (int j = 0; j < Sizes::kWeightN; j += Sizes::kBoxN) {
        box(j * Sizes::kBlockK + slice * kSlice * Sizes::kBoxN, n + j, k + slice * kSlice);
      }
    }
  }

  // load(first or second, offset in a stage, n): every weight of which this CTA loads something.
  // first, second: descriptors of the weights, or what stands for them. (Handed through: to choose
  // between them by a flag in `load` costs registers and uniform instructions.)
  template <class Map, class Rank, class Load>
  CUSWIGLU_HOST_DEVICE static void each_weight(TileCoord tile, int pass, Map const& first,
                                               Map const& second, Rank rank, Load load) {
    if constexpr (Sizes::kWeights == 2) {
      // A narrower tile's gate ends where its room in the stage does (WidthSizes::kFirstColumn).
      int const gate_n = tile.n - (tile.box - tile.width);
      int const gate_offset = (Sizes::kBlockN - tile.box) * Sizes::kBlockK;
      constexpr int kUpOffset = Sizes::kWeightN * Sizes::kBlockK;
      if constexpr (Sizes::kWeightEach) {
        bool const up = rank() != 0;
        load(up ? second : first, up ? kUpOffset : gate_offset, up ? tile.n : gate_n);
      } else {
        load(first, gate_offset, gate_n);
        load(second, kUpOffset, tile.n);
      }
    } else {
      // Packed weights have two columns for each of the result.
      load(pass == 0 ? first : second, 0, tile.n * (Sizes::kWeightN / Sizes::kBlockN));
    }
  }

  // Elements of X and of the weights that TMA moves into a stage.
  CUSWIGLU_HOST_DEVICE static int stage_elements(TileCoord tile) {
    int const columns = Sizes::kFittedBoxes ? 2 * tile.box : Sizes::kColumns;
    return (Sizes::kBlockM + columns) * Sizes::kBlockK;
  }
};

}  // namespace cuswiglu
