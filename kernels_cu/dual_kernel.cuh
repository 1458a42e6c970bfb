// The dual SwiGLU kernel: Y[M, N] = SiLU(X W_gate) * (X W_up), from two separate weight matrices.
//
// Warp roles (3 warpgroups, persistent over tiles)
//   warpgroup 0    producer: one thread issues every TMA load; 40 registers
//   warpgroup 1, 2 consumers: WGMMA, activation, store; 232 registers
//                  pingpong: each takes every second tile; one multiplies while the other stores
//                  cooperative: each takes half of the rows of every tile
//
// Barriers (shared memory)
//   full[stage]    1 arrival (own producer) and the stage's bytes, from all producers of the cluster
//   empty[stage]   1 arrival a consumer warp, from all CTAs of the cluster that share its data
//   turn[w]        pingpong only: 128 arrivals; lets consumer w start the products of a tile
//   named 1, 2     inside a consumer warpgroup, around its shared-memory tile of the result
//
// Timeline, pingpong (t0, t1, ... the CTA's tiles)
//   producer       load t0 | load t1 | load t2 | ...            as far ahead as there are stages
//   consumer 1     mma t0  | store t0| mma t2  | store t2
//   consumer 2             | mma t1  | store t1| mma t3  | ...
//
// Shared memory: kStages x (X tile, gate tile, up tile), then one result tile a consumer.
#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/arch/reg_reconfig.h>

#include "activation.cuh"
#include "dual_traits.cuh"
#include "epilogue_gated.cuh"
#include "mainloop_dual.cuh"
#include "tile_scheduler.cuh"

namespace cuswiglu {

template <class Traits, class Activation>
struct DualKernel {
  using Mainloop = DualMainloop<Traits>;
  using Epilogue = GatedEpilogue<Traits, Activation>;
  using SharedStorage = typename Traits::SharedStorage;
  using State = typename Mainloop::State;

  CUTLASS_DEVICE static void init_barriers(SharedStorage& smem) {
    constexpr int kWarpsPerStage = Traits::kPingpong ? 4 : 4 * Traits::kConsumers;
    if (threadIdx.x == 0) {
      CUTLASS_PRAGMA_UNROLL
      for (int stage = 0; stage < Traits::kStages; ++stage) {
        smem.full[stage].init(1);
        smem.empty[stage].init(kWarpsPerStage * Traits::kClusterSize);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int w = 0; w < Traits::kConsumers; ++w) smem.turn[w].init(128);
      cutlass::arch::fence_barrier_init();
    }
    if constexpr (Traits::kClusterSize > 1) {
      cute::cluster_arrive_relaxed();
      cute::cluster_wait();
    } else {
      __syncthreads();
    }
  }

  CUTLASS_DEVICE static TileCoord tile_of(TileScheduler const& scheduler, int number) {
    ClusterCoord const cluster = scheduler.coord(number);
    dim3 const peer = cute::block_id_in_cluster();
    return {(cluster.m * Traits::kClusterM + int(peer.x)) * Traits::kBlockM,
            (cluster.n * Traits::kClusterN + int(peer.y)) * Traits::kBlockN};
  }

  CUTLASS_DEVICE static void consume(SharedStorage& smem, TileScheduler const& scheduler,
                                     int k_tiles, int consumer, int first, int step,
                                     cute::TmaDescriptor const& tma_out) {
    State read;
    // Pingpong: consumer 1 starts with the CTA's second tile, and passes over the first's stages.
    int const tile_step = Traits::kPingpong ? Traits::kConsumers * step : step;
    int number = first;
    uint32_t turn_phase = 0;
    if constexpr (Traits::kPingpong) {
      if (consumer == 0) {
        smem.turn[0].arrive();  // nobody is before the first tile
      } else {
        number += step;
        read.advance(k_tiles);
      }
    }
    int const warpgroup_row = Traits::kPingpong ? 0 : consumer;

    for (; number < scheduler.clusters(); number += tile_step) {
      TileCoord const tile = tile_of(scheduler, number);
      auto accum = cute::partition_fragment_C(
          typename Traits::TiledMma{},
          Shape<Int<Traits::kWarpgroupM>, Int<2 * Traits::kBlockN>>{});
      if constexpr (Traits::kPingpong) {
        smem.turn[consumer].wait(turn_phase);
        turn_phase ^= 1;
      }
      Mainloop::mma(smem, read, k_tiles, warpgroup_row, accum);
      if constexpr (Traits::kPingpong) smem.turn[consumer ^ 1].arrive();
      Mainloop::finish(smem, read, accum);
      if constexpr (Traits::kPingpong) read.advance(k_tiles);  // the other consumer's tile
      Epilogue::store(accum, smem.out[consumer], consumer,
                      tile.m + warpgroup_row * Traits::kWarpgroupM, tile.n, tma_out);
    }
    Epilogue::drain();
  }

  CUTLASS_DEVICE static void run(cute::TmaDescriptor const& tma_x,
                                 cute::TmaDescriptor const& tma_gate,
                                 cute::TmaDescriptor const& tma_up,
                                 cute::TmaDescriptor const& tma_out, int m, int n, int k,
                                 int raster_rows) {
    extern __shared__ __align__(1024) unsigned char smem_bytes[];
    SharedStorage& smem = *reinterpret_cast<SharedStorage*>(smem_bytes);

    TileScheduler const scheduler(m, n, Traits::kBlockM * Traits::kClusterM,
                                  Traits::kBlockN * Traits::kClusterN, raster_rows);
    int const k_tiles = (k + Traits::kBlockK - 1) / Traits::kBlockK;
    // The grid is (kClusterM, kClusterN * clusters).
    int const first = int(blockIdx.y) / Traits::kClusterN;
    int const step = int(gridDim.y) / Traits::kClusterN;
    int const warpgroup = cutlass::canonical_warp_group_idx();

    init_barriers(smem);

    if (warpgroup == 0) {
      cutlass::arch::warpgroup_reg_dealloc<Traits::kProducerRegisters>();
      if (cutlass::canonical_warp_idx_sync() == 0 && cute::elect_one_sync()) {
        cute::prefetch_tma_descriptor(&tma_x);
        cute::prefetch_tma_descriptor(&tma_gate);
        cute::prefetch_tma_descriptor(&tma_up);
        cute::prefetch_tma_descriptor(&tma_out);
        State write(0, 1, 0);  // phase 1: all stages begin empty
        for (int number = first; number < scheduler.clusters(); number += step) {
          Mainloop::load(smem, write, tile_of(scheduler, number), k_tiles, tma_x, tma_gate,
                         tma_up);
        }
        Mainloop::drain(smem, write);
      }
    } else {
      cutlass::arch::warpgroup_reg_alloc<Traits::kConsumerRegisters>();
      consume(smem, scheduler, k_tiles, warpgroup - 1, first, step, tma_out);
    }
  }
};

}  // namespace cuswiglu

// One instance: an entry point with separate descriptors and integers, so that the caller packs
// plain values and never a C++ structure whose size depends on the compiler. SHARED_BYTES and BOX_N
// are what the build wrote into the manifest for the launch.
#define CUSWIGLU_DUAL_ENTRY(NAME, SCHEDULE, BLOCK_M, BLOCK_N, CLUSTER_M, CLUSTER_N, STAGES, MAJOR, \
                            SHARED_BYTES, BOX_N)                                                   \
  using NAME##_traits =                                                                            \
      cuswiglu::DualTraits<cuswiglu::Schedule::SCHEDULE, BLOCK_M, BLOCK_N, CLUSTER_M, CLUSTER_N,   \
                           STAGES, cuswiglu::Major::MAJOR>;                                        \
  static_assert(sizeof(NAME##_traits::SharedStorage) == SHARED_BYTES, "manifest: shared memory");  \
  static_assert(NAME##_traits::kBoxN == BOX_N, "manifest: TMA box");                               \
  extern "C" __global__ void __launch_bounds__(NAME##_traits::kThreads, 1)                         \
      NAME(__grid_constant__ cute::TmaDescriptor const tma_x,                                      \
           __grid_constant__ cute::TmaDescriptor const tma_gate,                                   \
           __grid_constant__ cute::TmaDescriptor const tma_up,                                     \
           __grid_constant__ cute::TmaDescriptor const tma_out, int m, int n, int k,               \
           int raster_rows) {                                                                      \
    cuswiglu::DualKernel<NAME##_traits, cuswiglu::SiLU>::run(tma_x, tma_gate, tma_up, tma_out, m,  \
                                                             n, k, raster_rows);                   \
  }
