// activation(gate) * up in registers, one rounding to BF16, stmatrix to shared memory, TMA store.
#pragma once

#include <cute/algorithm/copy.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cutlass/numeric_conversion.h>

#include "dual_traits.cuh"

namespace cuswiglu {

template <class Traits, class Activation>
struct GatedEpilogue {
  using Element = typename Traits::Element;

  CUTLASS_DEVICE static void sync_warpgroup(int consumer) {
    cutlass::arch::NamedBarrier::sync(128, uint32_t(consumer));
  }

  // accum: ((2, 2, 2 kBlockN / 8), M): its first half along N is gate, its second up.
  template <class Accumulators>
  CUTLASS_DEVICE static void store(Accumulators const& accum, Element* smem_out, int consumer,
                                   int row, int column, cute::TmaDescriptor const& tma_out) {
    int const thread = threadIdx.x % 128;
    typename Traits::TiledMmaOut mma_out;
    auto out = cute::make_tensor<Element>(cute::partition_shape_C(
        mma_out, Shape<Int<Traits::kWarpgroupM>, Int<Traits::kBlockN>>{}));
    constexpr int kHalf = Traits::kBlockN / 2;  // a thread's share of a gate row block
    Activation activation;
    cutlass::NumericArrayConverter<Element, float, 2> round;
    CUTLASS_PRAGMA_UNROLL
    for (int m = 0; m < cute::size<1>(out); ++m) {
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kHalf; v += 2) {
        cutlass::Array<float, 2> y;
        y[0] = activation(accum(v, m, 0)) * accum(v + kHalf, m, 0);
        y[1] = activation(accum(v + 1, m, 0)) * accum(v + 1 + kHalf, m, 0);
        auto pair = round(y);
        out(v, m, 0) = pair[0];
        out(v + 1, m, 0) = pair[1];
      }
    }

    // The store before last must have read the buffer before it is written again.
    if (thread == 0) cute::tma_store_wait<0>();
    sync_warpgroup(consumer);
    auto s_out = cute::as_position_independent_swizzle_tensor(
        cute::make_tensor(cute::make_smem_ptr(smem_out), typename Traits::SmemLayoutOut{}));
    auto copy = cute::make_tiled_copy_C(
        cute::Copy_Atom<cute::SM90_U32x4_STSM_N, Element>{}, mma_out);
    auto thread_copy = copy.get_slice(thread);
    cute::copy(copy, thread_copy.retile_S(out), thread_copy.partition_D(s_out));
    cute::tma_store_fence();
    sync_warpgroup(consumer);

    if (thread == 0) {
      CUTLASS_PRAGMA_UNROLL
      for (int box = 0; box < Traits::kBlockN; box += Traits::kBoxN) {
        cute::SM90_TMA_STORE_2D::copy(&tma_out, smem_out + box * Traits::kWarpgroupM, column + box,
                                      row);
      }
      cute::tma_store_arrive();
    }
  }

  // Shared memory must outlive the stores that read it.
  CUTLASS_DEVICE static void drain() {
    if (threadIdx.x % 128 == 0) cute::tma_store_wait<0>();
  }
};

}  // namespace cuswiglu
