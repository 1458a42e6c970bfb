// The K loop: TMA loads of X and the weights into a ring of stages, and WGMMAs over them.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cutlass/arch/grid_dependency_control.h>
#include <cutlass/pipeline/sm90_pipeline.hpp>

#include "traits.cuh"

namespace cuswiglu {

// A CTA's tile of the result: its first row and column, and how many rows it has.
struct TileCoord {
  int m;
  int n;
  int rows;
};

// The TMA descriptors of the inputs, which stay in the kernel's arguments.
struct InputMaps {
  cute::TmaDescriptor const& x;
  cute::TmaDescriptor const& first;   // gate, or the only weight
  cute::TmaDescriptor const& second;  // up
};

template <class Traits>
struct Mainloop {
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

  // kWeightN weight columns. CTAs along M need the same ones: each loads its slice, multicast.
  // `box` gets (offset in shared memory, coordinate along the contiguous dimension, the other).
  template <class Box>
  CUTLASS_DEVICE static void weight_boxes(int n, int k, Box box) {
    int const peer = Traits::kClusterM > 1 ? int(cute::block_rank_in_cluster()) : 0;
    if constexpr (Traits::kMajorB == Major::K) {
      constexpr int kSlice = Traits::kWeightN / Traits::kClusterM;  // rows of 64 along K
      box(peer * kSlice * Traits::kBlockK, k, n + peer * kSlice);
    } else {
      constexpr int kSlice = Traits::kBlockK / Traits::kClusterM;  // rows of kBoxN along N
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < Traits::kWeightN; j += Traits::kBoxN) {
        box(j * Traits::kBlockK + peer * kSlice * Traits::kBoxN, n + j, k + peer * kSlice);
      }
    }
  }

  CUTLASS_DEVICE static void load_weight(cute::TmaDescriptor const& tma, uint64_t* full,
                                         Element* smem, int n, int k) {
    weight_boxes(n, k, [&](int offset, int inner, int outer) {
      load_box<(Traits::kClusterM > 1)>(tma, full, smem + offset, inner, outer);
    });
  }

  CUTLASS_DEVICE static void load_weights(SharedStorage& smem, int stage, int n, int k, int pass,
                                          InputMaps const& maps) {
    auto* full = reinterpret_cast<uint64_t*>(&smem.full[stage]);
    Element* b = smem.b + stage * Traits::kColumns * Traits::kBlockK;
    n *= Traits::kWeightN / Traits::kBlockN;  // packed weights have two columns for each result
    load_weight(pass == 0 ? maps.first : maps.second, full, b, n, k);
    if constexpr (Traits::kWeights == 2) {
      load_weight(maps.second, full, b + Traits::kWeightN * Traits::kBlockK, n, k);
    }
  }

  CUTLASS_DEVICE static void load_x(SharedStorage& smem, int stage, TileCoord tile, int k,
                                    InputMaps const& maps) {
    // CTAs along N need the same rows: each loads a part of every box, multicast.
    constexpr bool kMulticast = Traits::kClusterN > 1;
    constexpr int kSlice = Traits::kRowBox / Traits::kClusterN;
    int const skip = kMulticast ? int(cute::block_rank_in_cluster()) * kSlice : 0;
    auto* full = reinterpret_cast<uint64_t*>(&smem.full[stage]);
    Element* a = smem.a + stage * Traits::kBlockM * Traits::kBlockK;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < Traits::kBlockM; row += Traits::kRowBox) {
      if (row < tile.rows) {
        load_box<kMulticast>(maps.x, full, a + (row + skip) * Traits::kBlockK, k,
                             tile.m + row + skip);
      }
    }
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
          smem.full[stage].arrive_and_expect_tx(Traits::stage_bytes(tile.rows));
          load_weights(smem, stage, tile.n, k, pass, maps);
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
      smem.full[stage].arrive_and_expect_tx(Traits::stage_bytes(tile.rows));
      load_weights(smem, stage, tile.n, stage * Traits::kBlockK, 0, maps);
    }
    return ahead;
  }

  // The same into L2 only, which stays right even if a kernel ahead writes the weights.
  CUTLASS_DEVICE static void prefetch_weights(TileCoord tile, int k_tiles, InputMaps const& maps) {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k_tile = 0; k_tile < k_tiles && k_tile < 2 * Traits::kStages; ++k_tile) {
      int const n = tile.n * (Traits::kWeightN / Traits::kBlockN);
      weight_boxes(n, k_tile * Traits::kBlockK, [&](int, int inner, int outer) {
        cute::SM90_TMA_LOAD_2D::PREFETCH::copy(&maps.first, inner, outer);
        if constexpr (Traits::kWeights == 2) {
          cute::SM90_TMA_LOAD_2D::PREFETCH::copy(&maps.second, inner, outer);
        }
      });
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

  // Consumer warpgroup: issues all products of one pass. The last ones may still be in flight at
  // return (finish() waits for them), so that the other warpgroup can be let in early.
  template <int kRows, class Accumulators>
  CUTLASS_DEVICE static void mma(SharedStorage& smem, State& read, int k_tiles, int first_row,
                                 Accumulators& accum) {
    auto s_a = cute::make_tensor(cute::make_smem_ptr(smem.a), typename Traits::SmemLayoutA{});
    auto s_b = cute::make_tensor(cute::make_smem_ptr(smem.b), typename Traits::SmemLayoutB{});
    auto s_a_rows = cute::local_tile(s_a, Shape<Int<kRows>, Int<Traits::kBlockK>>{},
                                     cute::make_coord(first_row / kRows, 0, _));
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
    release(smem, read.index() == 0 ? Traits::kStages - 1 : read.index() - 1);
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
