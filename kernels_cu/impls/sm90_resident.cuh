// The resident kernel: Y[M, N] = act(X W_gate) * (X W_up) of many rows and short K. A CTA loads its
// columns of both weights once, and keeps them while it walks over rows of X.
//
// What bounds such a problem is the result's way to memory, and the activation: there are few
// products for either. So nothing may wait for another. Rows of X stream through a ring of stages,
// each with all of K; four consumers take tiles by turns, so that while one multiplies, others
// activate and store; and within a consumer each warp stores by itself.
//
// Warp roles (5 warpgroups, persistent over tiles)
//   warpgroup 0    producer: one thread issues every TMA load; 24 registers
//   warpgroup 1-4  consumers: every fourth of the CTA's tiles; 112 registers
//
// Barriers (shared memory)
//   weights        1 arrival (producer), and the bytes of all weights that the CTA keeps
//   full[stage]    1 arrival (producer), and the stage's bytes
//   empty[stage]   1 arrival a warp for each tile that needs it: one of each column that is kept
//   named          one of all consumers, behind their fetching the biases
// Of a row whose stage a consumer waits for, the row `stages` before had a tile of its own too: so
// it knows that that one has come, and a phase's parity is enough. (Loads may overtake each other.)
//
// Programmatic dependent launch as in sm90_tile.cuh.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "common/launch.cuh"
#include "epilogue/activation.cuh"
#include "epilogue/biases.cuh"
#include "epilogue/resident_store.cuh"
#include "impls/sm90_resident_traits.cuh"
#include "mainloop/resident.cuh"
#include "scheduler/resident.cuh"

namespace cuswiglu::resident {

// kGeneral as in sm90_tile.cuh.
template <class Traits, bool kGeneral>
struct ResidentKernel {
  using Element = typename Traits::Element;
  using Cta = Cta<Traits>;
  using Loop = ResidentMainloop<Traits>;
  using Store = ResidentStore<Traits>;
  using Added = Biases<Traits>;

  // All that an entry point takes, as build_scripts/variants/arguments.py lists it.
  template <class Arguments>
  CUTLASS_DEVICE static void run(cute::TmaDescriptor const& x, cute::TmaDescriptor const& w_first,
                                 cute::TmaDescriptor const& w_second,
                                 cute::TmaDescriptor const& out, Arguments const& args) {
    extern __shared__ __align__(1024) unsigned char smem[];
    InputMaps const maps{x, w_first, w_second};
    EpilogueArgs<Element> const epilogue(args);
    ResidentScheduler const scheduler(args.m, args.n, Traits::kBlockM, Traits::kBlockN, args.groups,
                                      int(blockIdx.y), int(gridDim.y));
    Cta const cta(smem, scheduler.slices, args);
    int const warpgroup = cutlass::canonical_warp_group_idx();
    bool const producer = cutlass::canonical_warp_idx_sync() == 0 && cute::elect_one_sync();
    if (producer) {
      prefetch_descriptors(maps, true);
      cute::prefetch_tma_descriptor(&out);
    }
    init_barriers(cta, scheduler.slices);
    if (warpgroup == 0) {
      cutlass::arch::warpgroup_reg_dealloc<Traits::kProducerRegisters>();
      if (producer) produce(cta, scheduler, args.weights_ahead != 0, maps);
    } else {
      cutlass::arch::warpgroup_reg_alloc<Traits::kConsumerRegisters>();
      consume(cta, scheduler, warpgroup - 1, args.n, epilogue, out);
    }
  }

  CUTLASS_DEVICE static void init_barriers(Cta const& cta, int slices) {
    if (threadIdx.x == 0) {
      cta.fixed.weights.init(1);
      CUTLASS_PRAGMA_NO_UNROLL
      for (int stage = 0; stage < cta.stages; ++stage) {
        cta.fixed.full[stage].init(1);
        cta.fixed.empty[stage].init(4 * slices);
      }
      cutlass::arch::fence_barrier_init();
    }
    publish_barriers(false);
  }

  // ---- Producer, one thread ----

  CUTLASS_DEVICE static void produce(Cta const& cta, ResidentScheduler const& scheduler,
                                     bool weights_ahead, InputMaps const& maps) {
    if (weights_ahead) Loop::load_weights(cta, scheduler, maps);
    wait_for_work_ahead();
    if (!weights_ahead) Loop::load_weights(cta, scheduler, maps);
    Stage stage;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int row = scheduler.first; row < scheduler.rows; row += scheduler.step) {
      Loop::load_x(cta, stage, row, maps);
      stage.next(cta.stages);
    }
  }

  // ---- Consumers, a warpgroup each ----

  CUTLASS_DEVICE static void consume(Cta const& cta, ResidentScheduler const& scheduler,
                                     int consumer, int columns,
                                     EpilogueArgs<Element> const& epilogue,
                                     cute::TmaDescriptor const& tma_out) {
    bool const biased = kGeneral && epilogue.biased();
    if (biased) fetch_biases(cta, scheduler, consumer, columns, epilogue);
    cta.fixed.weights.wait(0);
    Stage stage;
    int row = scheduler.first, slice = consumer;
    while (true) {
      for (; slice >= scheduler.slices; slice -= scheduler.slices) {
        row += scheduler.step;
        stage.next(cta.stages);
      }
      if (row >= scheduler.rows) break;
      compute(cta, stage, slice, consumer, row * Traits::kBlockM,
              (scheduler.column + slice) * Traits::kBlockN, epilogue, tma_out);
      slice += Traits::kConsumers;
    }
    Store::drain();
  }

  // Those of all columns of tiles that the CTA keeps.
  CUTLASS_DEVICE static void fetch_biases(Cta const& cta, ResidentScheduler const& scheduler,
                                          int consumer, int columns,
                                          EpilogueArgs<Element> const& epilogue) {
    cutlass::arch::wait_on_dependent_grids();  // they may be just made
    for (int slice = consumer; slice < scheduler.slices; slice += Traits::kConsumers) {
      Added::fetch(epilogue, (scheduler.column + slice) * Traits::kBlockN, columns,
                   cta.fixed.biases[slice]);
    }
    cutlass::arch::NamedBarrier::sync(128 * Traits::kConsumers, uint32_t(0));
  }

  // One tile, and its store.
  CUTLASS_DEVICE static void compute(Cta const& cta, Stage stage, int slice, int consumer, int row,
                                     int column, EpilogueArgs<Element> const& epilogue,
                                     cute::TmaDescriptor const& tma_out) {
    constexpr int kWidth = Traits::kBlockN;
    auto sums = cute::partition_fragment_C(typename Traits::TiledMma{},
                                           Shape<Int<Traits::kBlockM>, Int<Traits::kColumns>>{});
    Loop::multiply(cta, stage, slice, sums);
    int const warp = cutlass::canonical_warp_idx_sync() % 4;
    auto store = [&](auto combine) __attribute__((always_inline)) {
      auto result = [&](int v) { return combine(sums(v, 0, 0), sums(v + kWidth / 2, 0, 0)); };
      Store::store(result, cta.fixed.out[4 * consumer + warp], row + warp * Traits::kOutRows,
                   column, tma_out);
    };
    if constexpr (kGeneral) {
      if (epilogue.biased()) Added::template add<kWidth>(cta.fixed.biases[slice], 0, sums);
      dispatch_activation(epilogue, store);
    } else {
      store(SiLUGated{});
    }
  }
};

}  // namespace cuswiglu::resident
