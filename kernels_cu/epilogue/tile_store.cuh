// From accumulators to the result: activation and product in registers, one rounding,
// stmatrix to shared memory, TMA store.
#pragma once

#include <cute/tensor.hpp>
#include <cute/algorithm/copy.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cutlass/numeric_conversion.h>

#include "common/named_barriers.cuh"
#include "epilogue/tile_boxes.cuh"
#include "impls/sm90_tile_traits.cuh"

namespace cuswiglu {

template <class Traits>
struct TileStore {
  using Element = typename Traits::Element;

  // Element v of a thread's share of row block m, kWidth wide; of gate (which = 0) or up (1).
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static float value(Accumulators const& accum, int v, int m, int which) {
    using Width = typename Traits::template Width<kWidth>;
    if constexpr (Width::kMmaN == Width::kColumns) {
      return accum(v + which * kWidth / 2, m, 0);
    } else {
      return accum(v, m, which);
    }
  }

  // Stores the tile whose first element is (row, column), box by box: while the arithmetic runs on
  // one box, TMA stores those before. If the width is no multiple of a box, the last two overlap.
  // `combine(v, m)` is the FP32 result of element v of row block m; `stored` counts the boxes that
  // this warpgroup has stored so far.
  template <int kWidth, class Combine>
  CUTLASS_DEVICE static void store(Combine combine, Element* smem_out, int consumer, int& stored,
                                   int row, int column, cute::TmaDescriptor const& tma_out) {
    static_assert(Traits::kOutStages >= 2, "one barrier a box needs two buffers");
    constexpr int kBox = Traits::kOutBoxN;
    int const thread = threadIdx.x % 128;
    typename Traits::TiledMmaOut mma_out;
    auto copy =
        cute::make_tiled_copy_C(cute::Copy_Atom<cute::SM90_U32x4_STSM_N, Element>{}, mma_out);
    auto thread_copy = copy.get_slice(thread);
    cutlass::NumericArrayConverter<Element, float, 2> round;
    CUTLASS_PRAGMA_UNROLL
    for (int m = 0; m < Traits::kWarpgroupM / Traits::kMmaM; ++m) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kWidth; j += kBox, ++stored) {
        int const first = box_start<kBox, kWidth>(j);
        auto out = cute::make_tensor<Element>(
            cute::partition_shape_C(mma_out, Shape<Int<Traits::kMmaM>, Int<kBox>>{}));
        CUTLASS_PRAGMA_UNROLL
        for (int v = 0; v < kBox / kColumnsPerAccumulator; v += 2) {
          cutlass::Array<float, 2> y;
          y[0] = combine(first / kColumnsPerAccumulator + v, m);
          y[1] = combine(first / kColumnsPerAccumulator + v + 1, m);
          auto pair = round(y);
          out(v, 0, 0) = pair[0];
          out(v + 1, 0, 0) = pair[1];
        }
        Element* buffer = smem_out + stored % Traits::kOutStages * (Traits::kMmaM * kBox);
        auto s_out = cute::as_position_independent_swizzle_tensor(
            cute::make_tensor(cute::make_smem_ptr(buffer), typename Traits::SmemLayoutOut{}));
        cute::copy(copy, thread_copy.retile_S(out), thread_copy.partition_D(s_out));
        store_box(buffer, consumer, column + first, row + m * Traits::kMmaM, tma_out);
      }
    }
  }

  // Stores what the warpgroup has written to a buffer.
  CUTLASS_DEVICE static void store_box(Element const* buffer, int consumer, int column, int row,
                                       cute::TmaDescriptor const& tma_out) {
    cute::tma_store_fence();
    // Behind this barrier the next box's buffer is free: of the stores issued so far, at most the
    // last kOutStages - 2 still read theirs.
    bool const issuing = threadIdx.x % 128 == 0;
    if (issuing) cute::tma_store_wait<Traits::kOutStages - 2>();
    sync_warpgroup(consumer);
    if (issuing) {
      cute::SM90_TMA_STORE_2D::copy(&tma_out, buffer, column, row);
      cute::tma_store_arrive();
    }
  }

  // Shared memory must outlive the stores that read it.
  CUTLASS_DEVICE static void drain() {
    if (threadIdx.x % 128 == 0) cute::tma_store_wait<0>();
  }
};

}  // namespace cuswiglu
