// From accumulators to the result: activation and product in registers, one rounding to BF16,
// stmatrix to shared memory, TMA store.
#pragma once

#include <cute/tensor.hpp>
#include <cute/algorithm/copy.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cutlass/numeric_conversion.h>

#include "traits.cuh"

namespace cuswiglu {

template <class Traits>
struct Epilogue {
  using Element = typename Traits::Element;
  static constexpr int kHalf = Traits::kBlockN / 2;  // a thread's elements of a 64-row block

  CUTLASS_DEVICE static void sync_warpgroup(int consumer) {
    cutlass::arch::NamedBarrier::sync(128, uint32_t(consumer));
  }

  // Element v of a thread's share of row block m; of gate (which = 0) or up (1).
  template <class Accumulators>
  CUTLASS_DEVICE static float value(Accumulators const& accum, int v, int m, int which) {
    if constexpr (Traits::kMmaN == Traits::kColumns) {
      return accum(v + which * kHalf, m, 0);
    } else {
      return accum(v, m, which);
    }
  }

  // Stores the tile whose first element is (row, column), box by box: while the arithmetic runs on
  // one box, TMA stores those before. `combine(v, m)` is the FP32 result of element v of row block
  // m; `stored` counts the boxes that this warpgroup has stored so far.
  template <int kRows, class Combine>
  CUTLASS_DEVICE static void store(Combine combine, Element* smem_out, int consumer, int& stored,
                                   int row, int column, cute::TmaDescriptor const& tma_out) {
    static_assert(Traits::kOutStages >= 2, "one barrier a box needs two buffers");
    constexpr int kBox = Traits::kOutBoxN;
    int const thread = threadIdx.x % 128;
    typename Traits::TiledMmaOut mma_out;
    // Four 8x8 matrices at a time cover 16 columns; two where the width is an odd multiple of 8.
    using Atom = cute::conditional_t<kBox % 16 == 0, cute::SM90_U32x4_STSM_N,
                                     cute::SM90_U32x2_STSM_N>;
    auto copy = cute::make_tiled_copy_C(cute::Copy_Atom<Atom, Element>{}, mma_out);
    auto thread_copy = copy.get_slice(thread);
    cutlass::NumericArrayConverter<Element, float, 2> round;
    CUTLASS_PRAGMA_UNROLL
    for (int m = 0; m < kRows / Traits::kRowBox; ++m) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < Traits::kBlockN / kBox; ++j, ++stored) {
        auto out = cute::make_tensor<Element>(cute::partition_shape_C(
            mma_out, Shape<Int<Traits::kRowBox>, Int<kBox>>{}));
        CUTLASS_PRAGMA_UNROLL
        for (int v = 0; v < kBox / 2; v += 2) {
          cutlass::Array<float, 2> y;
          y[0] = combine(j * kBox / 2 + v, m);
          y[1] = combine(j * kBox / 2 + v + 1, m);
          auto pair = round(y);
          out(v, 0, 0) = pair[0];
          out(v + 1, 0, 0) = pair[1];
        }
        Element* buffer = smem_out + stored % Traits::kOutStages * (Traits::kRowBox * kBox);
        auto s_out = cute::as_position_independent_swizzle_tensor(cute::make_tensor(
            cute::make_smem_ptr(buffer), typename Traits::SmemLayoutOut{}));
        cute::copy(copy, thread_copy.retile_S(out), thread_copy.partition_D(s_out));
        cute::tma_store_fence();
        // Behind this barrier the next box's buffer is free: of the stores issued so far, at most
        // the last kOutStages - 2 still read theirs.
        if (thread == 0) cute::tma_store_wait<Traits::kOutStages - 2>();
        sync_warpgroup(consumer);
        if (thread == 0) {
          cute::SM90_TMA_STORE_2D::copy(&tma_out, buffer, column + j * kBox,
                                        row + m * Traits::kRowBox);
          cute::tma_store_arrive();
        }
      }
    }
  }

  // Shared memory must outlive the stores that read it.
  CUTLASS_DEVICE static void drain() {
    if (threadIdx.x % 128 == 0) cute::tma_store_wait<0>();
  }
};

}  // namespace cuswiglu
