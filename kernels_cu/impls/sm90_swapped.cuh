// The swapped tile kernel: a persistent, warp-specialised matrix product with a gated epilogue,
// whose operands are exchanged: rows of the weights are the MMA's M, tokens its N.
//   gated  Y[M, N] = act(X W_gate) * (X W_up): a tile has a box of 64 rows of either weight
//   plain  Y[M, N] = X W: a tile has two boxes, one behind the other
// A WGMMA's N goes in steps of 8, so M is cut into columns of tokens that cost what they have. Any
// width from kFewest to kMost is compiled: products have a code path for each, and leave their sums
// in the same registers, so that the epilogue is one for all. Boxes may have fewer than 64 rows,
// where tiles come out even then: products cost the same, loads less.
//
// Warp roles (3 warpgroups, persistent over tiles)
//   warpgroup 0    producer: one thread issues every TMA load; 24 registers
//   warpgroup 1, 2 consumers, in turns: one multiplies while the other stores; 240 registers
//
// Barriers (shared memory)
//   full[stage]    1 arrival (own producer), and the stage's bytes: of X, from the whole cluster
//   empty[stage]   1 arrival a consumer warp, from all CTAs of the cluster that share X
//   sums_full      1 arrival (own consumer), and the bytes of the sums that the peers send
//   sums_free      1 arrival a consumer warp of every peer: its stages have room for sums
//   named          one inside each consumer warpgroup, around its buffers of the result; one for
//                  each, which lets it start the products of a tile (its turn)
//
// The two CTAs of a cluster compute tiles that lie side by side along N, and share X. Where the last
// wave leaves most of them without work, its tiles are cut along K instead: each multiplies a part
// of K, sends its sums of the others' tokens, adds what they send, and stores its own share of the
// tokens. CTAs of larger clusters do so with every tile, for there are few.
//
// Programmatic dependent launch as in sm90_tile.cuh.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "common/launch.cuh"
#include "epilogue/activation.cuh"
#include "epilogue/swapped_store.cuh"
#include "impls/sm90_swapped_traits.cuh"
#include "mainloop/swapped.cuh"
#include "scheduler/swapped.cuh"

namespace cuswiglu::swapped {

// kGeneral as in sm90_tile.cuh.
template <class Traits, bool kGeneral>
struct SwappedKernel {
  using Element = typename Traits::Element;
  using Cta = Cta<Traits>;
  using Loop = SwappedMainloop<Traits>;
  using Store = SwappedStore<Traits>;
  using Sums = typename Loop::Sums;

  // All that an entry point takes, as build_scripts/variants/arguments.py lists it.
  template <class Arguments>
  CUTLASS_DEVICE static void run(cute::TmaDescriptor const& x, cute::TmaDescriptor const& w_first,
                                 cute::TmaDescriptor const& w_second,
                                 cute::TmaDescriptor const& out, Arguments const& args) {
    extern __shared__ __align__(1024) unsigned char smem[];
    Cta const cta(smem, args);
    InputMaps const maps{x, w_first, w_second};
    EpilogueArgs<Element> const epilogue(args);
    int const cluster_columns = cta.columns() * Traits::kSharers;
    SwappedScheduler const scheduler{(args.n + cluster_columns - 1) / cluster_columns,
                                     args.columns,
                                     args.wide,
                                     args.width,
                                     args.raster_rows,
                                     args.whole,
                                     Traits::kSharers};
    int const k_tiles = (args.k + Traits::kBlockK - 1) / Traits::kBlockK;
    int const warpgroup = cutlass::canonical_warp_group_idx();
    bool const producer = cutlass::canonical_warp_idx_sync() == 0 && cute::elect_one_sync();
    if (producer) {
      prefetch_descriptors(maps, Traits::kGated);
      cute::prefetch_tma_descriptor(&out);
    }
    init_barriers(cta);
    if (warpgroup == 0) {
      cutlass::arch::warpgroup_reg_dealloc<Traits::kProducerRegisters>();
      if (producer) produce(cta, scheduler, k_tiles, args.weights_ahead != 0, maps);
    } else {
      cutlass::arch::warpgroup_reg_alloc<Traits::kConsumerRegisters>();
      consume(cta, scheduler, k_tiles, warpgroup - 1, args.n, epilogue, out);
    }
  }

  CUTLASS_DEVICE static void init_barriers(Cta const& cta) {
    if (threadIdx.x == 0) {
      CUTLASS_PRAGMA_NO_UNROLL
      for (int stage = 0; stage < cta.stages; ++stage) {
        cta.fixed.full[stage].init(1);
        cta.fixed.empty[stage].init(4 * Traits::kSharers);
      }
      cta.fixed.sums_full.init(1);
      cta.fixed.sums_free.init(4 * max(1, Traits::kClusterN - 1));
      cutlass::arch::fence_barrier_init();
    }
    publish_barriers(Traits::kClusterN > 1);
  }

  // ---- Producer, one thread ----

  CUTLASS_DEVICE static void produce(Cta const& cta, SwappedScheduler const& scheduler, int k_tiles,
                                     bool weights_ahead, InputMaps const& maps) {
    int const count = scheduler.count(), first = int(blockIdx.y), step = int(gridDim.y);
    int armed = 0;
    if (weights_ahead && first < count) {
      armed = Loop::load_weights_ahead(cta, scheduler.tile(first, cta.rank), k_tiles, maps);
    }
    wait_for_work_ahead();
    Stage stage;
    for (int number = first; number < count; number += step) {
      Loop::load(cta, stage, scheduler.tile(number, cta.rank), k_tiles, armed, maps);
      armed = 0;
    }
    Loop::drain(cta, stage);
  }

  // ---- Consumers, a warpgroup each ----

  CUTLASS_DEVICE static void consume(Cta const& cta, SwappedScheduler const& scheduler, int k_tiles,
                                     int consumer, int columns,
                                     EpilogueArgs<Element> const& epilogue,
                                     cute::TmaDescriptor const& tma_out) {
    int const count = scheduler.count(), step = int(gridDim.y);
    int number = int(blockIdx.y) + consumer * step;
    Stage stage;
    // Consumer 1 starts with the CTA's second tile, and passes over the first's stages.
    if (consumer == 1) {
      give_turn(0);  // nobody is before the first tile
      stage.skip(k_tiles, cta.stages);
    }
    int stored = 0;
    bool const biased = kGeneral && epilogue.biased();
    if (biased) cutlass::arch::wait_on_dependent_grids();  // they may be just made
    Sums sums;
    SwappedTile tile;
    auto store = [&](typename Store::Range range) __attribute__((always_inline)) {
      store_tile(cta, consumer, stored, tile, range, sums, columns, epilogue, tma_out);
    };
    CUTLASS_PRAGMA_NO_UNROLL
    for (; number < count; number += Traits::kConsumers * step) {
      tile = scheduler.tile(number, cta.rank);
      wait_for_turn(consumer);
      Loop::for_tokens(tile.tokens, [&](auto tokens) __attribute__((always_inline)) {
        Loop::template multiply<tokens.value>(cta, stage, Loop::part(cta, tile, k_tiles).count,
                                              !tile.split, sums, [&] { give_turn(consumer ^ 1); });
      });
      if (Traits::kClusterN > 1 && tile.split) break;  // no other follows
      stage.skip(k_tiles, cta.stages);                 // those of the other consumer's tile
      store({0, tile.tokens});
    }
    if constexpr (Traits::kClusterN > 1) {
      if (number < count) store(Store::add_up(cta, tile.tokens, sums));
    }
    Store::drain();
  }

  // Stores a range of a tile's tokens.
  CUTLASS_DEVICE static void store_tile(Cta const& cta, int consumer, int& stored, SwappedTile tile,
                                        typename Store::Range range, Sums const& sums, int columns,
                                        EpilogueArgs<Element> const& epilogue,
                                        cute::TmaDescriptor const& tma_out) {
    int const column = tile.block * cta.columns();
    float bias[2][2] = {};  // of both weights or boxes of rows, for a thread's two rows
    if (kGeneral && epilogue.biased()) fetch_biases(cta, epilogue, column, columns, bias);
    auto store = [&](int first, auto value) {
      Store::store(value, cta, consumer, stored, first, tile.token, range, tma_out);
    };
    auto first = [&](int i) { return sums.first[i] + bias[0][i / 2 % 2]; };
    auto second = [&](int i) { return sums.second[i] + bias[1][i / 2 % 2]; };
    if constexpr (!Traits::kGated) {
      store(column, [&](int i) { return kGeneral ? first(i) : sums.first[i]; });
      store(column + cta.rows, [&](int i) { return kGeneral ? second(i) : sums.second[i]; });
    } else if constexpr (!kGeneral) {
      SiLUGated const combine;
      store(column, [&](int i) { return combine(sums.first[i], sums.second[i]); });
    } else {
      dispatch_activation(epilogue, [&](auto combine) {
        store(column, [&](int i) { return combine(first(i), second(i)); });
      });
    }
  }

  CUTLASS_DEVICE static void fetch_biases(Cta const& cta, EpilogueArgs<Element> const& epilogue,
                                          int n, int columns, float (&bias)[2][2]) {
    CUTLASS_PRAGMA_UNROLL
    for (int half = 0; half < 2; ++half) {
      int const column = n + Store::row() + 8 * half;
      bias[0][half] = float(bias_of(epilogue.bias_first, column, columns));
      bias[1][half] = Traits::kGated
                          ? float(bias_of(epilogue.bias_second, column, columns))
                          : float(bias_of(epilogue.bias_first, column + cta.rows, columns));
    }
  }
};

}  // namespace cuswiglu::swapped
