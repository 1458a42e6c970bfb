// Boxes of the result that a warpgroup stores of a tile. Plain integer code: compiles for the host
// too.
#pragma once

#include "common/host_device.cuh"

namespace cuswiglu {

// Columns for each accumulator of a thread: of 8 columns and 64 rows of a WGMMA it has 4.
constexpr int kColumnsPerAccumulator = 2;

// First column of the box whose turn is at `next`, in a tile kWidth wide: the last box of a tile
// that is no multiple of a box ends where the tile does, and overlaps the one before. Any unit.
// (Sizes are template arguments: with plain ones some kernels are laid out in other registers.)
template <int kBox, int kWidth>
CUSWIGLU_HOST_DEVICE constexpr int box_start(int next) {
  return next + kBox <= kWidth ? next : kWidth - kBox;
}

}  // namespace cuswiglu
