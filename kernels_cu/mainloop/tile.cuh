// The K loop: TMA loads of X and the weights into a ring of stages, and WGMMAs over them.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>

#include "common/launch.cuh"
#include "impls/sm90_tile_traits.cuh"
#include "operands/dense.cuh"

namespace cuswiglu {

template <class Traits>
struct TileMainloop {
  using Operands = DenseOperands<typename Traits::Sizes>;
  using Element = typename Traits::Element;
  using SharedStorage = typename Traits::SharedStorage;
  using State = cutlass::PipelineState<Traits::kStages>;
  static constexpr uint64_t kHint = uint64_t(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  // One box, to this CTA or to all CTAs of the cluster.
  template <bool kMulticast>
  CUTLASS_DEVICE static void load_box(cute::TmaDescriptor const& tma, uint64_t* full, Element* smem,
                                      int inner, int outer) {
    if constexpr (kMulticast) {
      constexpr uint16_t kEveryone = (1u << Traits::kClusterM) - 1;
      cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&tma, full, kEveryone, kHint, smem, inner, outer);
    } else {
      cute::SM90_TMA_LOAD_2D::copy(&tma, full, kHint, smem, inner, outer);
    }
  }

  CUTLASS_DEVICE static auto rank() {
    return [] { return int(cute::block_rank_in_cluster()); };
  }

  CUTLASS_DEVICE static void load_weights(SharedStorage& smem, int stage, TileCoord tile, int k,
                                          int pass, InputMaps const& maps) {
    auto* full = reinterpret_cast<uint64_t*>(&smem.full[stage]);
    Element* b = smem.b + stage * Traits::kStageElementsB;
    auto load = [&](cute::TmaDescriptor const& tma, int start, int n) {
      Operands::each_box(n, k, rank(), [&](int offset, int inner, int outer) {
        load_box<(Traits::kClusterM > 1)>(tma, full, b + start + offset, inner, outer);
      });
    };
    Operands::each_weight(tile, pass, maps.first, maps.second, rank(), load);
  }

  CUTLASS_DEVICE static int stage_bytes(TileCoord tile) {
    return Operands::stage_elements(tile) * int(sizeof(Element));
  }

  CUTLASS_DEVICE static void load_x(SharedStorage& smem, int stage, TileCoord tile, int k,
                                    InputMaps const& maps) {
    load_box<false>(maps.x, reinterpret_cast<uint64_t*>(&smem.full[stage]),
                    smem.a + stage * Traits::kBlockM * Traits::kBlockK, k, tile.m);
  }

  // Producer, one thread: all K of one tile. Of the first `armed` stages the weights are under way.
  CUTLASS_DEVICE static void load(SharedStorage& smem, State& write, TileCoord tile, int k_tiles,
                                  int armed, InputMaps const& maps) {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int pass = 0; pass < Traits::kPasses; ++pass) {
      CUTLASS_PRAGMA_NO_UNROLL
      for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ++write) {
        int const stage = write.index();
        int const k = k_tile * Traits::kBlockK;
        if (armed > 0) {
          --armed;
        } else {
          smem.empty[stage].wait(write.phase());
          smem.full[stage].arrive_and_expect_tx(stage_bytes(tile));
          load_weights(smem, stage, tile, k, pass, maps);
        }
        load_x(smem, stage, tile, k, maps);
      }
    }
  }

  // Producer, before the work ahead is done: the weights of the first stages, which no kernel ahead
  // writes. Returns how many stages are armed.
  CUTLASS_DEVICE static int load_weights_ahead(SharedStorage& smem, TileCoord tile, int k_tiles,
                                               InputMaps const& maps) {
    int const ahead = k_tiles < Traits::kStages ? k_tiles : Traits::kStages;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int stage = 0; stage < ahead; ++stage) {
      smem.full[stage].arrive_and_expect_tx(stage_bytes(tile));
      load_weights(smem, stage, tile, stage * Traits::kBlockK, 0, maps);
    }
    return ahead;
  }

  // Hands a stage back to the producers that fill it: one arrival a warp for each of them.
  CUTLASS_DEVICE static void release(SharedStorage& smem, int stage) {
    uint32_t const lane = cutlass::canonical_lane_idx();
    if constexpr (Traits::kClusterM == 1) {
      if (lane == 0) smem.empty[stage].arrive();
    } else {
      smem.empty[stage].arrive(lane, lane < Traits::kClusterM);
    }
  }

  // Consumer warpgroup: issues all products of one pass, for kWidth columns of the result. Those of
  // the last stage, which is returned, may still be in flight (finish() waits for them), so that
  // the other warpgroup can be let in early.
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static int mma(SharedStorage& smem, State& read, int k_tiles, int first_row,
                                Accumulators& accum) {
    using Width = typename Traits::template Width<kWidth>;
    auto s_a = cute::make_tensor(cute::make_smem_ptr(smem.a), typename Traits::SmemLayoutA{});
    auto s_a_rows = cute::local_tile(s_a, Shape<Int<Traits::kWarpgroupM>, Int<Traits::kBlockK>>{},
                                     cute::make_coord(first_row / Traits::kWarpgroupM, 0, _));
    // The tile's columns, of stages that have room for the widest.
    auto const stage_b = typename Traits::template SmemLayoutBStage<Width::kColumns>{};
    auto const layout_b = cute::make_composed_layout(
        stage_b.layout_a(), stage_b.offset(),
        cute::append(stage_b.layout_b(),
                     cute::Layout<Int<Traits::kStages>, Int<Traits::kStageElementsB>>{}));
    auto s_b = cute::make_tensor(
        cute::make_smem_ptr(smem.b + Width::kFirstColumn * Traits::kBlockK), layout_b);
    typename Width::TiledMma mma;
    auto thread_mma = mma.get_slice(0);  // shared-memory operands: the same for every thread
    auto r_a = thread_mma.make_fragment_A(thread_mma.partition_A(s_a_rows));  // (MMA,M,K,stage)
    auto r_b = thread_mma.make_fragment_B(thread_mma.partition_B(s_b));       // (MMA,N,K,stage)

    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    int previous = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ++read) {
      int const stage = read.index();
      smem.full[stage].wait(read.phase());
      cute::warpgroup_fence_operand(accum);
      cute::warpgroup_arrive();
      CUTLASS_PRAGMA_UNROLL
      for (int k = 0; k < cute::size<2>(r_a); ++k) {
        cute::gemm(mma, r_a(_, _, k, stage), r_b(_, _, k, stage), accum);
        mma.accumulate_ = cute::GMMA::ScaleOut::One;
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      cute::warpgroup_fence_operand(accum);
      if (k_tile > 0) release(smem, previous);
      previous = stage;
    }
    return previous;
  }

  // Waits for the products still in flight and hands back the last stage.
  template <class Accumulators>
  CUTLASS_DEVICE static void finish(SharedStorage& smem, int last, Accumulators& accum) {
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(accum);
    release(smem, last);
  }

  // Producer, before it exits: every stage has come back, so no peer will arrive here any more.
  CUTLASS_DEVICE static void drain(SharedStorage& smem, State& write) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Traits::kStages; ++i, ++write) {
      smem.empty[write.index()].wait(write.phase());
    }
  }
};

}  // namespace cuswiglu
