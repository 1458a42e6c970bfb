// The resident kernel's loads and products: weights once, then X, row of tiles by row of tiles.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "common/launch.cuh"
#include "impls/sm90_resident_traits.cuh"
#include "operands/dense.cuh"
#include "scheduler/resident.cuh"

namespace cuswiglu::resident {

template <class Traits>
struct ResidentMainloop {
  using Element = typename Traits::Element;
  using Operands = DenseOperands<typename Traits::Sizes>;
  using Cta = Cta<Traits>;
  static constexpr uint64_t kHint = uint64_t(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  // ---- Producer, one thread ----

  CUTLASS_DEVICE static void load_weights(Cta const& cta, ResidentScheduler const& scheduler,
                                          InputMaps const& maps) {
    auto rank = [] { return 0; };
    auto* full = reinterpret_cast<uint64_t*>(&cta.fixed.weights);
    int const steps = scheduler.slices * cta.k_tiles;
    cta.fixed.weights.arrive_and_expect_tx(steps * Traits::kStepElementsB * int(sizeof(Element)));
    CUTLASS_PRAGMA_NO_UNROLL
    for (int slice = 0; slice < scheduler.slices; ++slice) {
      int const n = (scheduler.column + slice) * Traits::kBlockN;
      TileCoord const tile{0, n, Traits::kBlockN, Traits::kBlockN};
      CUTLASS_PRAGMA_NO_UNROLL
      for (int k_tile = 0; k_tile < cta.k_tiles; ++k_tile) {
        Element* to = cta.weights(slice, k_tile);
        auto load = [&](cute::TmaDescriptor const& map, int start, int first) {
          Operands::each_box(first, k_tile * Traits::kBlockK, rank,
                             [&](int offset, int inner, int outer) {
            cute::SM90_TMA_LOAD_2D::copy(&map, full, kHint, to + start + offset, inner, outer);
          });
        };
        Operands::each_weight(tile, 0, maps.first, maps.second, rank, load);
      }
    }
  }

  // X of one row of tiles, all of K.
  CUTLASS_DEVICE static void load_x(Cta const& cta, Stage stage, int row, InputMaps const& maps) {
    cta.fixed.empty[stage.index].wait(stage.phase ^ 1);
    auto& full = cta.fixed.full[stage.index];
    full.arrive_and_expect_tx(cta.k_tiles * Traits::kStepElementsX * int(sizeof(Element)));
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k_tile = 0; k_tile < cta.k_tiles; ++k_tile) {
      cute::SM90_TMA_LOAD_2D::copy(&maps.x, reinterpret_cast<uint64_t*>(&full), kHint,
                                   cta.x(stage.index, k_tile), k_tile * Traits::kBlockK,
                                   row * Traits::kBlockM);
    }
  }

  // ---- Consumers ----

  // All products of a tile: of one of the CTA's columns of tiles, and of X in `stage`, which is
  // handed back, by one arrival a warp.
  template <class Accumulators>
  CUTLASS_DEVICE static void multiply(Cta const& cta, Stage stage, int slice, Accumulators& sums) {
    typename Traits::TiledMma mma;
    auto const thread_mma = mma.get_slice(0);  // shared-memory operands: the same for every thread
    auto const s_x = steps<typename Traits::SmemLayoutX, Traits::kStepElementsX>(cta.ring);
    auto const s_w = steps<typename Traits::SmemLayoutB, Traits::kStepElementsB>(cta.kept);
    auto const r_x = thread_mma.make_fragment_A(thread_mma.partition_A(s_x));  // (MMA, M, K, step)
    auto const r_w = thread_mma.make_fragment_B(thread_mma.partition_B(s_w));  // (MMA, N, K, step)
    int x = stage.index * cta.k_tiles, w = slice * cta.k_tiles;
    int const last = x + cta.k_tiles;
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    cta.fixed.full[stage.index].wait(stage.phase);
    cute::warpgroup_fence_operand(sums);
    cute::warpgroup_arrive();
    do {  // one step at least: sums need not be cleared
      CUTLASS_PRAGMA_UNROLL
      for (int k = 0; k < cute::size<2>(r_x); ++k) {
        cute::gemm(mma, r_x(_, _, k, x), r_w(_, _, k, w), sums);
        mma.accumulate_ = cute::GMMA::ScaleOut::One;
      }
      cute::warpgroup_commit_batch();
      ++w;
    } while (++x < last);
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(sums);
    if (cutlass::canonical_lane_idx() == 0) cta.fixed.empty[stage.index].arrive();
  }

  // Steps of K, each of Layout and so many elements, as one tensor.
  template <class Layout, int kElements>
  CUTLASS_DEVICE static auto steps(Element* first) {
    constexpr int kMost = Traits::kMostShared / (kElements * int(sizeof(Element)));
    Layout const step;
    return cute::make_tensor(
        cute::make_smem_ptr(first),
        cute::make_composed_layout(
            step.layout_a(), step.offset(),
            cute::append(step.layout_b(), cute::Layout<Int<kMost>, Int<kElements>>{})));
  }
};

}  // namespace cuswiglu::resident
