// The tile kernel: a persistent, warp-specialised matrix product with a gated epilogue.
//   Dual   Y[M, N] = act(X W_gate) * (X W_up), both products in one pass over K
//   Sync   the same, gate's pass and activation before up's pass (the paper's Kernel-1)
//   Interleave  the same from one packed matrix, by a visitor tree (the paper's Kernel-2)
//   Plain  Y[M, N] = X W, the down projection
// The result is cut into tiles; tokens are the MMA's M. Entries with SiLU's epilogue do the above;
// those with the general one (kGeneral) add biases and take any activation, behind all products.
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
// Programmatic dependent launch: barriers and descriptors come before griddepcontrol.wait, X and
// everything written after it. So do the first weights, where the caller knows that no kernel ahead
// writes them (`weights_ahead`). To fetch them to L2 where he does not would be slower.
//
// Shared memory: kStages x (X tile, weight tiles), then kOutStages boxes of the result a consumer,
// barriers, and biases of a tile's columns.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/arch/reg_reconfig.h>

#include "common/launch.cuh"
#include "epilogue/activation.cuh"
#include "epilogue/biases.cuh"
#include "epilogue/pair_mul_store.cuh"
#include "epilogue/tile_store.cuh"
#include "impls/sm90_tile_traits.cuh"
#include "mainloop/tile.cuh"
#include "scheduler/dense.cuh"

namespace cuswiglu {

// kGeneral: the general epilogue, biases and any activation, as the launch asks; else SiLU(gate) *
// up, or a product. Entries of their own, for one that branches costs SiLU up to 2% where kernels
// are short.
template <class Traits, bool kGeneral>
struct TileKernel {
  using Element = typename Traits::Element;
  using Loop = TileMainloop<Traits>;
  using Store = TileStore<Traits>;
  using Added = Biases<Traits>;
  using SharedStorage = typename Traits::SharedStorage;
  using State = typename Loop::State;

  // All that an entry point takes, as build_scripts/variants/arguments.py lists it.
  template <class Arguments>
  CUTLASS_DEVICE static void run(cute::TmaDescriptor const& x, cute::TmaDescriptor const& w_first,
                                 cute::TmaDescriptor const& w_second,
                                 cute::TmaDescriptor const& out, Arguments const& args) {
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    SharedStorage& smem = *reinterpret_cast<SharedStorage*>(smem_bytes);
    InputMaps const maps{x, w_first, w_second};
    EpilogueArgs<Element> const epilogue(args);

    DenseScheduler const scheduler(args.m, args.n, Traits::kBlockM * Traits::kClusterM,
                                   args.raster_rows, args.wide, args.wide_width, args.narrow_width);
    int const k_tiles = (args.k + Traits::kBlockK - 1) / Traits::kBlockK;
    // The grid is (kClusterM, clusters).
    int const first = int(blockIdx.y);
    int const step = int(gridDim.y);
    int const warpgroup = cutlass::canonical_warp_group_idx();
    bool const producer = cutlass::canonical_warp_idx_sync() == 0 && cute::elect_one_sync();

    if (producer) {
      prefetch_descriptors(maps, Traits::kWeights * Traits::kPasses == 2);
      cute::prefetch_tma_descriptor(&out);
    }
    init_barriers(smem);

    if (warpgroup == 0) {
      cutlass::arch::warpgroup_reg_dealloc<Traits::kProducerRegisters>();
      if (producer) {
        produce(smem, scheduler, k_tiles, first, step, args.weights_ahead != 0, maps);
      }
    } else {
      cutlass::arch::warpgroup_reg_alloc<Traits::kConsumerRegisters>();
      consume(smem, scheduler, k_tiles, warpgroup - 1, first, step, args.n, epilogue, out);
    }
  }

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
    publish_barriers(Traits::kClusterM > 1);
  }

  // ---- Producer, one thread ----

  CUTLASS_DEVICE static void produce(SharedStorage& smem, DenseScheduler const& scheduler,
                                     int k_tiles, int first, int step, bool weights_ahead,
                                     InputMaps const& maps) {
    int const count = scheduler.count();
    int armed = 0;
    if (weights_ahead && first < count) {
      armed = Loop::load_weights_ahead(smem, tile_of(scheduler, first), k_tiles, maps);
    }
    wait_for_work_ahead();
    State write(0, 1, 0);  // phase 1: all stages begin empty
    for (int number = first; number < count; number += step) {
      Loop::load(smem, write, tile_of(scheduler, number), k_tiles, armed, maps);
      armed = 0;
    }
    Loop::drain(smem, write);
  }

  // ---- Consumers, a warpgroup each ----

  CUTLASS_DEVICE static void consume(SharedStorage& smem, DenseScheduler const& scheduler,
                                     int k_tiles, int consumer, int first, int step, int columns,
                                     EpilogueArgs<Element> const& epilogue,
                                     cute::TmaDescriptor const& tma_out) {
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
    bool const biased = kGeneral && epilogue.biased();
    if (biased) cutlass::arch::wait_on_dependent_grids();  // they may be just made
    for (; number < count; number += tile_step) {
      TileCoord const tile = tile_of(scheduler, number);
      if (biased) {
        Added::fetch(epilogue, tile.n, columns, smem.biases[consumer]);
        sync_warpgroup(consumer);
      }
      // Inlined however long it is.
      Traits::for_width(tile.width, [&](auto width) __attribute__((always_inline)) {
        compute<width.value>(smem, read, tile, k_tiles, consumer, stored, epilogue, tma_out);
      });
    }
    Store::drain();
  }

  CUTLASS_DEVICE static TileCoord tile_of(DenseScheduler const& scheduler, int number) {
    return Loop::Operands::tile(scheduler.coord(number), scheduler.wide_width, Loop::rank());
  }

  // One consumer warpgroup's share of a tile kWidth wide.
  template <int kWidth>
  CUTLASS_DEVICE static void compute(SharedStorage& smem, State& read, TileCoord tile, int k_tiles,
                                     int consumer, int& stored,
                                     EpilogueArgs<Element> const& epilogue,
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
      if constexpr (kGeneral) {
        if (epilogue.biased()) Added::template add<kWidth>(smem.biases[consumer], pass, sums);
      }
    };
    SiLU silu;

    int last = Loop::template mma<kWidth>(smem, read, k_tiles, first_row, accum);
    if constexpr (Traits::kPasses == 2) {
      auto activate = [&] {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < cute::size(accum); ++i) accum(i) = silu(accum(i));
      };
      Loop::finish(smem, last, accum);
      add_biases(accum, 0);
      // The loads of up's first stages are in flight meanwhile.
      if constexpr (Traits::Family::kActivateBetween && !kGeneral) activate();
      auto up = cute::partition_fragment_C(typename Width::TiledMma{}, AccumShape{});
      last = Loop::template mma<kWidth>(smem, read, k_tiles, first_row, up);
      end_of_turn();
      Loop::finish(smem, last, up);
      add_biases(up, 1);
      if constexpr (Traits::Family::kActivateBehind && !kGeneral) activate();
      if constexpr (kGeneral) {
        dispatch_activation(epilogue, [&](auto combine) { store<kWidth>(to, accum, up, combine); });
      } else {
        store<kWidth>(to, accum, up, [](float gate, float up) { return gate * up; });
      }
    } else {
      end_of_turn();
      Loop::finish(smem, last, accum);
      add_biases(accum, 0);
      if constexpr (kGeneral && Traits::kGates == 2) {
        dispatch_activation(epilogue,
                            [&](auto combine) { store<kWidth>(to, accum, accum, combine); });
      } else {
        store<kWidth>(to, accum, accum, SiLUGated{});
      }
    }
    // Pingpong: pass over the stages of the other consumer's tile.
    if constexpr (Traits::kPingpong) read.advance(Traits::kPasses * k_tiles);
  }

  // Where a warpgroup stores its share of a tile.
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
    if constexpr (Traits::Family::kPacked) {  // by the visitor-tree node
      using Box = Shape<Int<Traits::kMmaM>, Int<2 * Traits::kOutBoxN>>;
      using Node = PairMulStore<Traits::kOutStages, Box, Traits::kPacking, Combine, Element,
                                cute::TmaDescriptor const*>;
      typename Node::Params const params{&to.tma};
      Node node(combine);
      node.params = &params;
      node.smem = to.boxes;
      node.store_tile(accum, typename Traits::template Width<kWidth>::TiledMma{}, to.row, to.column,
                      threadIdx.x % 128, [&] { sync_warpgroup(to.consumer); }, to.stored);
    } else {
      auto result = [&](int v, int m) {
        if constexpr (Traits::kPasses == 2) {
          return combine(accum(v, m, 0), up(v, m, 0));
        } else if constexpr (Traits::kGates == 1) {
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
};

}  // namespace cuswiglu
