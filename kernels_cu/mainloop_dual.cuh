// The K loop: TMA loads of X, gate and up into a ring of stages, and WGMMAs over them.
#pragma once

#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>

#include "dual_traits.cuh"

namespace cuswiglu {

struct TileCoord {
  int m;  // first row and first column of the CTA's tile of the result
  int n;
};

template <class Traits>
struct DualMainloop {
  using Element = typename Traits::Element;
  using SharedStorage = typename Traits::SharedStorage;
  using State = cutlass::PipelineState<Traits::kStages>;
  static constexpr uint64_t kHint = uint64_t(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  // One box, to this CTA or to all CTAs of the cluster.
  template <bool kMulticast>
  CUTLASS_DEVICE static void load_box(cute::TmaDescriptor const& tma, uint64_t* full,
                                      Element* smem, int inner, int outer) {
    if constexpr (kMulticast) {
      constexpr uint16_t kEveryone = (1u << Traits::kClusterSize) - 1;
      cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&tma, full, kEveryone, kHint, smem, inner, outer);
    } else {
      cute::SM90_TMA_LOAD_2D::copy(&tma, full, kHint, smem, inner, outer);
    }
  }

  // kBlockN weight columns. CTAs along M need the same ones: each loads its slice, multicast.
  CUTLASS_DEVICE static void load_weight(cute::TmaDescriptor const& tma, uint64_t* full,
                                         Element* smem, int n, int k) {
    constexpr bool kMulticast = Traits::kClusterM > 1;
    int const peer = kMulticast ? int(cute::block_rank_in_cluster()) : 0;
    if constexpr (Traits::kMajorB == Major::K) {
      constexpr int kSlice = Traits::kBlockN / Traits::kClusterM;  // rows of 64 along K
      load_box<kMulticast>(tma, full, smem + peer * kSlice * Traits::kBlockK, k,
                           n + peer * kSlice);
    } else {
      constexpr int kSlice = Traits::kBlockK / Traits::kClusterM;  // rows of kBoxN along N
      CUTLASS_PRAGMA_UNROLL
      for (int box = 0; box < Traits::kBlockN; box += Traits::kBoxN) {
        load_box<kMulticast>(
            tma, full, smem + box * Traits::kBlockK + peer * kSlice * Traits::kBoxN, n + box,
            k + peer * kSlice);
      }
    }
  }

  CUTLASS_DEVICE static void load_x(cute::TmaDescriptor const& tma, uint64_t* full, Element* smem,
                                    int m, int k) {
    constexpr bool kMulticast = Traits::kClusterN > 1;
    constexpr int kSlice = Traits::kBlockM / Traits::kClusterN;
    int const peer = kMulticast ? int(cute::block_rank_in_cluster()) : 0;
    load_box<kMulticast>(tma, full, smem + peer * kSlice * Traits::kBlockK, k, m + peer * kSlice);
  }

  // Producer, one thread: all K of one tile.
  CUTLASS_DEVICE static void load(SharedStorage& smem, State& write, TileCoord tile, int k_tiles,
                                  cute::TmaDescriptor const& tma_x,
                                  cute::TmaDescriptor const& tma_gate,
                                  cute::TmaDescriptor const& tma_up) {
    constexpr int kHalfB = Traits::kBlockN * Traits::kBlockK;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ++write) {
      int const stage = write.index();
      smem.empty[stage].wait(write.phase());
      auto& full = smem.full[stage];
      full.arrive_and_expect_tx(Traits::kStageBytes);
      auto* bar = reinterpret_cast<uint64_t*>(&full);
      int const k = k_tile * Traits::kBlockK;
      Element* b = smem.b + stage * 2 * kHalfB;
      load_x(tma_x, bar, smem.a + stage * Traits::kBlockM * Traits::kBlockK, tile.m, k);
      load_weight(tma_gate, bar, b, tile.n, k);
      load_weight(tma_up, bar, b + kHalfB, tile.n, k);
    }
  }

  // Hands a stage back to the producers that fill it: one arrival a warp for each of them.
  CUTLASS_DEVICE static void release(SharedStorage& smem, int stage) {
    uint32_t const lane = cutlass::canonical_lane_idx();
    if constexpr (Traits::kClusterSize == 1) {
      if (lane == 0) smem.empty[stage].arrive();
    } else {
      smem.empty[stage].arrive(lane, lane < Traits::kClusterSize);
    }
  }

  // Consumer warpgroup: issues all products of one tile. The last ones may still be in flight at
  // return (finish() waits for them), so that the other warpgroup can be let in early.
  template <class Accumulators>
  CUTLASS_DEVICE static void mma(SharedStorage& smem, State& read, int k_tiles, int warpgroup_row,
                                 Accumulators& accum) {
    auto s_a = cute::make_tensor(cute::make_smem_ptr(smem.a), typename Traits::SmemLayoutA{});
    auto s_b = cute::make_tensor(cute::make_smem_ptr(smem.b), typename Traits::SmemLayoutB{});
    auto s_a_rows = cute::local_tile(s_a, Shape<Int<Traits::kWarpgroupM>, Int<Traits::kBlockK>>{},
                                     cute::make_coord(warpgroup_row, 0, _));
    typename Traits::TiledMma mma;
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
  }

  // Waits for the products still in flight and hands back the last stage.
  template <class Accumulators>
  CUTLASS_DEVICE static void finish(SharedStorage& smem, State const& read, Accumulators& accum) {
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(accum);
    int const last = read.index() == 0 ? Traits::kStages - 1 : read.index() - 1;
    release(smem, last);
  }

  // Producer, before it exits: every stage has come back, so no peer will arrive here any more.
  CUTLASS_DEVICE static void drain(SharedStorage& smem, State& write) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Traits::kStages; ++i, ++write) smem.empty[write.index()].wait(write.phase());
  }
};

}  // namespace cuswiglu
