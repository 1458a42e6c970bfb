// The resident kernel behind its products: one rounding, stmatrix to shared memory, TMA store; each
// warp by itself, so that none waits for another.
#pragma once

#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "epilogue/rounded_pair.cuh"
#include "impls/sm90_resident_traits.cuh"

namespace cuswiglu::resident {

template <class Traits>
struct ResidentStore {
  using Element = typename Traits::Element;

  // Stores a warp's 16 rows of a tile, the first of them `row`: combine(v) is the FP32 result of
  // its sum v, of which a thread has four of every 8 columns. `buffer` is the warp's own.
  template <class Combine>
  CUTLASS_DEVICE static void store(Combine combine, Element* buffer, int row, int column,
                                   cute::TmaDescriptor const& tma) {
    int const lane = cutlass::canonical_lane_idx();
    // Where a lane's row of 16 bytes goes: stmatrix writes four blocks of 8 rows by 8 columns, two
    // along the rows, then two along the columns; 128-byte swizzle.
    unsigned char* const to = reinterpret_cast<unsigned char*>(buffer) + lane % 16 * 128;
    auto pair = [&](int v) { return rounded_pair<Element>(combine(v), combine(v + 1)); };
    bool const issuing = cute::elect_one_sync();
    if (issuing) cute::tma_store_wait<0>();  // the tile before has left the buffer
    __syncwarp();
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Traits::kBlockN; j += 16) {
      int const v = j / 2;  // sums of 16 columns
      int const chunk = (j / 8 + lane / 16) ^ (lane % 8);
      cute::SM90_U32x4_STSM_N::copy(pair(v), pair(v + 2), pair(v + 4), pair(v + 6),
                                    *reinterpret_cast<cute::uint128_t*>(to + chunk * 16));
    }
    cute::tma_store_fence();
    __syncwarp();
    if (issuing) {
      cute::SM90_TMA_STORE_2D::copy(&tma, buffer, column, row);
      cute::tma_store_arrive();
    }
  }

  // Shared memory must outlive the stores that read it.
  CUTLASS_DEVICE static void drain() { cute::tma_store_wait<0>(); }
};

}  // namespace cuswiglu::resident
