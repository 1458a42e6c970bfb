// The kernel: a persistent, warp-specialised matrix product with a gated epilogue.
//   Dual   Y[M, N] = act(X W_gate) * (X W_up), both products in one pass over K
//   Sync   the same, gate's pass and activation before up's pass (the paper's Kernel-1)
//   Interleave  the same from one packed matrix, by a visitor tree (the paper's Kernel-2)
//   Plain  Y[M, N] = X W, the down projection
// Entries for SiLU do so. Those for extras (kExtras) add biases and take any activation, behind
// all products.
//
// Warp roles (3 warpgroups, persistent over tiles)
//   warpgroup 0    producer: one thread issues every TMA load; 40 registers
//   warpgroup 1, 2 consumers: WGMMA, activation, store; 232 registers
//                  pingpong: each takes every second tile; one multiplies while the other stores
//                  cooperative: each takes half of the rows of every tile
//
// Barriers (shared memory)
//   full[stage]    1 arrival (own producer), and the stage's bytes from the cluster's producers
//   empty[stage]   1 arrival a consumer warp, from all CTAs of the cluster that share its data
//   named          one inside each consumer warpgroup, around its boxes of the result and behind
//                  the fetch of biases;
//                  pingpong: one for each, which lets it start the products of a tile (its turn)
//
// Timeline, pingpong (t0, t1, ... the CTA's tiles)
//   producer       load t0 | load t1 | load t2 | ...            as far ahead as there are stages
//   consumer 1     mma t0  | store t0| mma t2  | store t2
//   consumer 2             | mma t1  | store t1| mma t3  | ...
//
// Programmatic dependent launch: barriers, descriptors and the first weights come before
// griddepcontrol.wait, X and everything written after it. Weights go to shared memory ahead only
// where the caller knows that no kernel ahead writes them (`weights_ahead`), else to L2.
//
// Shared memory: kStages x (X tile, weight tiles), then kOutStages boxes of the result a consumer,
// barriers, and biases of a tile's columns.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/arch/reg_reconfig.h>

#include "epilogue/activation.cuh"
#include "epilogue/biases.cuh"
#include "epilogue/tile_store.cuh"
#include "mainloop/tile.cuh"
#include "epilogue/pair_mul_store.cuh"
#include "scheduler/dense.cuh"
#include "impls/sm90_tile_traits.cuh"

namespace cuswiglu {

struct Sizes {
  int m;
  int n;
  int k;
  int raster_rows;  // and three more of TileScheduler
  int wide;
  int wide_width;
  int narrow_width;
  int weights_ahead;  // see above
};

// kExtras: biases and any activation, as the launch asks; else SiLU(gate) * up, or a product.
// Entries of their own, for one that branches costs SiLU up to 2% where kernels are short.
template <class Traits, bool kExtras>
struct Kernel {
  using Element = typename Traits::Element;
  using Loop = Mainloop<Traits>;
  using Asked = Gating<Element>;
  using Store = Epilogue<Traits>;
  using Added = Biases<Traits>;
  using SharedStorage = typename Traits::SharedStorage;
  using State = typename Loop::State;

  CUTLASS_DEVICE static void init_barriers(SharedStorage& smem) {
    constexpr int kWarpsPerStage = Traits::kPingpong ? 4 : 4 * Traits::kConsumers;
    if (threadIdx.x == 0) {
      CUTLASS_PRAGMA_UNROLL
      for (int stage = 0; stage < Traits::kStages; ++stage) {
        smem.full[stage].init(1);
        smem.empty[stage].init(kWarpsPerStage * Traits::kClusterM);
      }
      cutlass::arch::fence_barrier_init();
    }
    if constexpr (Traits::kClusterM > 1) {
      cute::cluster_arrive_relaxed();
      cute::cluster_wait();
    } else {
      __syncthreads();
    }
  }

  CUTLASS_DEVICE static TileCoord tile_of(TileScheduler const& scheduler, int number) {
    ClusterCoord const cluster = scheduler.coord(number);
    int const peer = Traits::kClusterM > 1 ? int(cute::block_rank_in_cluster()) : 0;
    int const m = (cluster.row * Traits::kClusterM + peer) * Traits::kBlockM;
    int const box = Traits::kFittedBoxes ? scheduler.wide_width : Traits::kBlockN;
    return {m, cluster.column, cluster.width, box};
  }

  // Named barriers wake faster than those in shared memory: the turn changes once a tile, and the
  // tensor cores would idle meanwhile.
  CUTLASS_DEVICE static void wait_for_turn(int consumer) {
    cutlass::arch::NamedBarrier::sync(256, uint32_t(Traits::kConsumers + consumer));
  }
  CUTLASS_DEVICE static void give_turn(int consumer) {
    cutlass::arch::NamedBarrier::arrive(256, uint32_t(Traits::kConsumers + consumer));
  }

  // What a warpgroup stores: where, of which tile.
  struct Target {
    Element* boxes;
    int consumer;
    int& stored;
    int row;
    int column;
    cute::TmaDescriptor const& tma;
  };

  // Stores combine(gate, up) of all accumulators; of the only weight, themselves. Sync has up's
  // apart, in `up`.
  template <int kWidth, class Accumulators, class Combine>
  CUTLASS_DEVICE static void store(Target const& to, Accumulators const& accum,
                                   Accumulators const& up, Combine const& combine) {
    if constexpr (Traits::kFamily == Family::Interleave) {  // by the visitor-tree node
      using Box = Shape<Int<Traits::kMmaM>, Int<2 * Traits::kOutBoxN>>;
      using Node = PairMulStore<Traits::kOutStages, Box, Traits::kPacking, Combine, Element,
                                cute::TmaDescriptor const*>;
      typename Node::Params const params{&to.tma};
      Node node(combine);
      node.params = &params;
      node.smem = to.boxes;
      node.store_tile(accum, typename Traits::template Width<kWidth>::TiledMma{}, to.row,
                      to.column, threadIdx.x % 128,
                      [&] { Store::sync_warpgroup(to.consumer); }, to.stored);
    } else {
      auto result = [&](int v, int m) {
        if constexpr (Traits::kTwoPasses) {
          return combine(accum(v, m, 0), up(v, m, 0));
        } else if constexpr (Traits::kFamily == Family::Plain) {
          return Store::template value<kWidth>(accum, v, m, 0);
        } else {
          return combine(Store::template value<kWidth>(accum, v, m, 0),
                         Store::template value<kWidth>(accum, v, m, 1));
        }
      };
      Store::template store<kWidth>(result, to.boxes, to.consumer, to.stored, to.row, to.column,
                                    to.tma);
    }
  }

  // One consumer warpgroup's share of a tile kWidth wide.
  template <int kWidth>
  CUTLASS_DEVICE static void compute(SharedStorage& smem, State& read, TileCoord tile, int k_tiles,
                                     int consumer, int& stored, Asked const& asked,
                                     cute::TmaDescriptor const& tma_out) {
    using Width = typename Traits::template Width<kWidth>;
    int const first_row = Traits::kPingpong ? 0 : consumer * Traits::kWarpgroupM;
    using AccumShape = Shape<Int<Traits::kWarpgroupM>, Int<Width::kColumns>>;
    auto accum = cute::partition_fragment_C(typename Width::TiledMma{}, AccumShape{});
    if constexpr (Traits::kPingpong) wait_for_turn(consumer);
    auto end_of_turn = [&] {
      if constexpr (Traits::kPingpong) give_turn(consumer ^ 1);
    };
    Target const to{smem.out[consumer], consumer, stored, tile.m + first_row, tile.n, tma_out};
    auto add_biases = [&](auto& sums, int pass) {
      if constexpr (kExtras) {
        if (asked.biased()) Added::template add<kWidth>(smem.biases[consumer], pass, sums);
      }
    };
    SiLU silu;

    int last = Loop::template mma<kWidth>(smem, read, k_tiles, first_row, accum);
    if constexpr (Traits::kTwoPasses) {
      auto activate = [&] {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < cute::size(accum); ++i) accum(i) = silu(accum(i));
      };
      Loop::finish(smem, last, accum);
      add_biases(accum, 0);
      // The loads of up's first stages are in flight meanwhile.
      if constexpr (Traits::kFamily == Family::Sync && !kExtras) activate();
      auto up = cute::partition_fragment_C(typename Width::TiledMma{}, AccumShape{});
      last = Loop::template mma<kWidth>(smem, read, k_tiles, first_row, up);
      end_of_turn();
      Loop::finish(smem, last, up);
      add_biases(up, 1);
      if constexpr (Traits::kFamily == Family::SyncLate && !kExtras) activate();
      if constexpr (kExtras) {
        with_gate(asked, [&](auto combine) { store<kWidth>(to, accum, up, combine); });
      } else {
        store<kWidth>(to, accum, up, [](float gate, float up) { return gate * up; });
      }
    } else {
      end_of_turn();
      Loop::finish(smem, last, accum);
      add_biases(accum, 0);
      if constexpr (kExtras && Traits::kFamily != Family::Plain) {
        with_gate(asked, [&](auto combine) { store<kWidth>(to, accum, accum, combine); });
      } else {
        store<kWidth>(to, accum, accum, SiluGated{});
      }
    }
    // Pingpong: pass over the stages of the other consumer's tile.
    if constexpr (Traits::kPingpong) read.advance(Traits::kPasses * k_tiles);
  }

  // f(Int<width>), for a width that is kWidth or a narrower one.
  template <int kWidth, class F>
  CUTLASS_DEVICE static void for_width(int width, F f) {
    if constexpr (kWidth > Traits::kNarrowest) {
      if (width < kWidth) {
        for_width<kWidth - Traits::kNarrowing>(width, f);
        return;
      }
    }
    f(Int<kWidth>{});
  }

  CUTLASS_DEVICE static void consume(SharedStorage& smem, TileScheduler const& scheduler,
                                     int k_tiles, int consumer, int first, int step, int columns,
                                     Asked const& asked, cute::TmaDescriptor const& tma_out) {
    State read;
    // Pingpong: consumer 1 starts with the CTA's second tile, and passes over the first's stages.
    int const tile_step = Traits::kPingpong ? Traits::kConsumers * step : step;
    int number = first + (Traits::kPingpong ? consumer * step : 0);
    if constexpr (Traits::kPingpong) {
      if (consumer == 1) {
        give_turn(0);  // nobody is before the first tile
        read.advance(Traits::kPasses * k_tiles);
      }
    }
    int const count = scheduler.count();
    int stored = 0;
    bool const biased = kExtras && asked.biased();
    if (biased) cutlass::arch::wait_on_dependent_grids();  // they may be just made
    for (; number < count; number += tile_step) {
      TileCoord const tile = tile_of(scheduler, number);
      if (biased) {
        Added::fetch(asked, tile.n, columns, smem.biases[consumer]);
        Store::sync_warpgroup(consumer);
      }
      // Inlined however long it is.
      for_width<Traits::kBlockN>(tile.width, [&](auto width) __attribute__((always_inline)) {
        compute<width>(smem, read, tile, k_tiles, consumer, stored, asked, tma_out);
      });
    }
    Store::drain();
  }

  CUTLASS_DEVICE static void produce(SharedStorage& smem, TileScheduler const& scheduler,
                                     int k_tiles, int first, int step, bool weights_ahead,
                                     InputMaps const& maps) {
    int const count = scheduler.count();
    int armed = 0;
    if (first < count) {
      TileCoord const tile = tile_of(scheduler, first);
      if (weights_ahead) {
        armed = Loop::load_weights_ahead(smem, tile, k_tiles, maps);
      } else {
        Loop::prefetch_weights(tile, k_tiles, maps);
      }
    }
    cutlass::arch::wait_on_dependent_grids();
    // Only now: the kernel behind this one may then take for granted what lay before this one.
    cutlass::arch::launch_dependent_grids();
    State write(0, 1, 0);  // phase 1: all stages begin empty
    for (int number = first; number < count; number += step) {
      Loop::load(smem, write, tile_of(scheduler, number), k_tiles, armed, maps);
      armed = 0;
    }
    Loop::drain(smem, write);
  }

  CUTLASS_DEVICE static void run(InputMaps const& maps, cute::TmaDescriptor const& tma_out,
                                 Sizes const& sizes, Asked const& asked) {
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    SharedStorage& smem = *reinterpret_cast<SharedStorage*>(smem_bytes);

    TileScheduler const scheduler(sizes.m, sizes.n, Traits::kBlockM * Traits::kClusterM,
                                  sizes.raster_rows, sizes.wide, sizes.wide_width,
                                  sizes.narrow_width);
    int const k_tiles = (sizes.k + Traits::kBlockK - 1) / Traits::kBlockK;
    // The grid is (kClusterM, clusters).
    int const first = int(blockIdx.y);
    int const step = int(gridDim.y);
    int const warpgroup = cutlass::canonical_warp_group_idx();
    bool const producer = cutlass::canonical_warp_idx_sync() == 0 && cute::elect_one_sync();

    if (producer) {
      cute::prefetch_tma_descriptor(&maps.x);
      cute::prefetch_tma_descriptor(&maps.first);
      if constexpr (Traits::kWeights * Traits::kPasses == 2) {
        cute::prefetch_tma_descriptor(&maps.second);
      }
      cute::prefetch_tma_descriptor(&tma_out);
    }
    init_barriers(smem);

    if (warpgroup == 0) {
      cutlass::arch::warpgroup_reg_dealloc<Traits::kProducerRegisters>();
      if (producer) {
        produce(smem, scheduler, k_tiles, first, step, sizes.weights_ahead != 0, maps);
      }
    } else {
      cutlass::arch::warpgroup_reg_alloc<Traits::kConsumerRegisters>();
      consume(smem, scheduler, k_tiles, warpgroup - 1, first, step, sizes.n, asked, tma_out);
    }
  }
};

}  // namespace cuswiglu

// One instance: an entry point with separate descriptors and integers, so that the caller packs
// plain values and never a C++ structure whose size depends on the compiler. SHARED_BYTES, BOX_N
// and FITTED are what the build wrote into the manifest for the launch. A plain kernel ignores
// tma_second.
#define CUSWIGLU_ENTRY(NAME, ELEMENT, EXTRAS, FAMILY, SCHEDULE, BLOCK_M, BLOCK_N, CLUSTER_M,      \
                       STAGES, OUT_STAGES, MAJOR, PACKING, NARROWING, NARROWEST, SHARED_BYTES,    \
                       BOX_N, FITTED)                                                             \
  using NAME##_traits =                                                                           \
      cuswiglu::Traits<ELEMENT, cuswiglu::Family::FAMILY, cuswiglu::Schedule::SCHEDULE, BLOCK_M,  \
                       BLOCK_N, CLUSTER_M, STAGES, OUT_STAGES, cuswiglu::Major::MAJOR, PACKING,   \
                       NARROWING, NARROWEST>;                                                     \
  static_assert(sizeof(NAME##_traits::SharedStorage) == SHARED_BYTES, "manifest: shared memory"); \
  static_assert(NAME##_traits::kBoxN == BOX_N, "manifest: TMA boxes");                            \
  static_assert(NAME##_traits::kFittedBoxes == FITTED, "manifest: TMA boxes");                    \
  extern "C" __global__ void __launch_bounds__(NAME##_traits::kThreads, 1)                        \
      NAME(__grid_constant__ cute::TmaDescriptor const tma_x,                                     \
           __grid_constant__ cute::TmaDescriptor const tma_first,                                 \
           __grid_constant__ cute::TmaDescriptor const tma_second,                                \
           __grid_constant__ cute::TmaDescriptor const tma_out,                                   \
           NAME##_traits::Element const* bias_first, NAME##_traits::Element const* bias_second,   \
           int m, int n, int k, int raster_rows, int wide, int wide_width, int narrow_width,      \
           int weights_ahead, int activation, float linear, float cubic, float limit,             \
           float up_constant) {                                                                   \
    cuswiglu::Kernel<NAME##_traits, EXTRAS>::run(                                                 \
        {tma_x, tma_first, tma_second}, tma_out,                                                  \
        {m, n, k, raster_rows, wide, wide_width, narrow_width, weights_ahead},                    \
        {cuswiglu::Activation(activation),                                                        \
         {linear, cubic, limit, up_constant}, bias_first, bias_second});                          \
  }
