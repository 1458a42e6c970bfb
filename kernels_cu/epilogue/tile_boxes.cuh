// Boxes of the result that a warpgroup stores of a tile. Plain integer code: compiles for the host
// too.
#pragma once

#include "common/host_device.cuh"

namespace cuswiglu {

// Columns for each accumulator of a thread: of 8 columns and 64 rows of a WGMMA it has 4.
constexpr int kColumnsPerAccumulator = 2;

// First column of the box whose turn is at `next`, in a tile `width` wide: the last box of a tile
// that is no multiple of a box ends where the tile does, and overlaps the one before. Any unit.
CUSWIGLU_HOST_DEVICE constexpr int box_start(int next, int box, int width) {
  return next + box <= width ? next : width - box;
}

}  // namespace cuswiglu
