// Biases: fetched to shared memory ahead of a tile's products, added to its sums behind them.
#pragma once

#include <cutlass/array.h>

#include "epilogue/activation.cuh"
#include "impls/sm90_tile_traits.cuh"

namespace cuswiglu {

template <class Traits>
struct Biases {
  using Element = typename Traits::Element;
  using Shared = typename Traits::Biases;
  static constexpr bool kTurns = Traits::kPacking == 1;  // gate and up, by single columns

  // Fetches the biases of the tile whose first column is n, of `columns`. The warpgroup's threads
  // meet at a barrier then, and each has met one since it last read those before.
  CUTLASS_DEVICE static void fetch(EpilogueArgs<Element> const& epilogue, int n, int columns,
                                   Shared& biases) {
    for (int i = int(threadIdx.x) % 128; i < Traits::kBlockN; i += 128) {
      biases[0][i] = bias_of(epilogue.bias_first, n + i, columns);
      if constexpr (Traits::kGates == 2) {
        biases[1][i] = bias_of(epilogue.bias_second, n + i, columns);
      }
    }
  }

  // The weight that the 8 columns `group` of accumulators belong to (0: gate or the only one, 1:
  // up), and their first column.
  struct Place {
    int gate;
    int column;
  };
  template <int kWidth>
  CUTLASS_DEVICE static constexpr Place place(int group) {
    if constexpr (Traits::kPacking > 0) {
      constexpr int kGroups = Traits::kPacking / 8;  // of gate, then as many of up
      return {group / kGroups % 2, (group / (2 * kGroups) * kGroups + group % kGroups) * 8};
    } else {
      int const behind = group * 8 - kWidth;  // both weights in one WGMMA
      return {behind >= 0 ? 1 : 0, behind >= 0 ? behind : group * 8};
    }
  }

  // Adds the biases to a thread's sums, which are of two neighbours of every 8 columns, and of rows
  // eight apart. `pass`: the sums are gate's (0) or up's (1), where these are apart.
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static void add(Shared const& biases, int pass, Accumulators& accum) {
    int const lane = int(threadIdx.x % 4);
    CUTLASS_PRAGMA_UNROLL
    for (int which = 0; which < cute::size<2>(accum); ++which) {
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < cute::size<0>(accum) / 4; ++group) {
        cutlass::Array<Element, 2> pair;
        if constexpr (kTurns) {
          pair[0] = biases[0][4 * group + lane];
          pair[1] = biases[1][4 * group + lane];
        } else {
          Place const at = place<kWidth>(group);
          pair = reinterpret_cast<cutlass::Array<Element, 2> const&>(
              biases[at.gate + which + pass][at.column + 2 * lane]);
        }
        float const first = float(pair[0]), second = float(pair[1]);
        CUTLASS_PRAGMA_UNROLL
        for (int m = 0; m < cute::size<1>(accum); ++m) {
          CUTLASS_PRAGMA_UNROLL
          for (int row = 0; row < 4; row += 2) {
            accum(4 * group + row, m, which) += first;
            accum(4 * group + row + 1, m, which) += second;
          }
        }
      }
    }
  }
};

}  // namespace cuswiglu
