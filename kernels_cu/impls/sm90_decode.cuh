// The decode kernel: few tokens, so that the weights' bytes are nearly all that costs. Operands are
// swapped: rows of the weights are the MMA's M, tokens its N.
//   gated  Y[M, N] = act(X W_gate) * (X W_up)
//   plain  Y[M, N] = X W, the down projection
//
// Work: the weights' rows (columns of the result) are cut into tiles of `rows`, a run-time
// argument, so that all SMs get the same bytes. The down projection has few rows: its K is cut into
// a part for each CTA of a cluster.
//
// Warp roles (288 threads, persistent over tiles)
//   warps 0-3, 4-7  consumer warpgroups 0 and 1: WGMMA, sums, activation, store. Tiles of more than
//                   64 rows: each takes 64 rows of both boxes of a step. Others: each takes one
//                   box, and then gives the other its sums of every second eight rows
//   warp 8          producer: one thread issues every TMA load
//
// Barriers (shared memory)
//   full[stage]     1 arrival (producer), and the stage's bytes
//   empty[stage]    1 arrival a consumer warp
//   sums_full       1 arrival (own consumer), and the bytes of sums that the cluster's CTAs send
//   sums_free       1 arrival a CTA of the cluster: the sums it was sent are read
//   named           one among the consumers
//
// A cluster's CTAs share a tile's rows among them. Each sends its sums of a row to the row's owner,
// which adds them in the order of ranks: the same bits come out every run.
//
// Programmatic dependent launch: weights (where no kernel just ahead writes them) before
// griddepcontrol.wait, X and all that is written after it. A CTA takes at most half of an SM's
// shared memory where that is enough, so that the next kernel starts beside it and fills its stages
// while this one ends.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

#include "epilogue/activation.cuh"
#include "epilogue/decode_store.cuh"
#include "mainloop/decode.cuh"
#include "impls/sm90_decode_traits.cuh"

namespace cuswiglu::decode {

// kGeneral as in sm90_tile.cuh.
template <class Traits, bool kGeneral>
struct DecodeKernel {
  using Element = typename Traits::Element;
  using Cta = Cta<Traits>;
  using Loop = DecodeMainloop<Traits>;
  using Store = DecodeStore<Traits>;

  // All that an entry point takes, as build_scripts/variants/arguments.py lists it.
  template <class Arguments>
  CUTLASS_DEVICE static void run(cute::TmaDescriptor const& x, cute::TmaDescriptor const& w_first,
                                 cute::TmaDescriptor const& w_second, Arguments const& args) {
    extern __shared__ __align__(1024) unsigned char smem[];
    Cta const cta(smem, args);
    InputMaps const maps{x, w_first, w_second};
    EpilogueArgs<Element> const epilogue(args);
    bool const producer = cutlass::canonical_warp_idx_sync() == Traits::kConsumerThreads / 32;
    if (producer && cute::elect_one_sync()) prefetch_descriptors(maps, Traits::kGated);
    init_barriers(cta);
    if (producer) {
      if (cute::elect_one_sync()) Loop::produce(cta, args, maps);
    } else if (args.rows > Traits::kMmaRows) {
      consume<true>(cta, args, args.out, epilogue);
    } else {
      consume<false>(cta, args, args.out, epilogue);
    }
  }

  CUTLASS_DEVICE static void init_barriers(Cta const& cta) {
    if (threadIdx.x == 0) {
      CUTLASS_PRAGMA_NO_UNROLL
      for (int stage = 0; stage < cta.stages; ++stage) {
        cta.barriers.full[stage].init(1);
        cta.barriers.empty[stage].init(Traits::kConsumerThreads / 32);
      }
      cta.barriers.sums_full.init(1);
      cta.barriers.sums_free.init(cta.ranks);
      cutlass::arch::fence_barrier_init();
    }
    publish_barriers(cta.ranks > 1);
  }

  // kBoth: tiles have more than 64 rows, of which a thread has two of its warpgroup's; else one.
  template <bool kBoth, class Arguments>
  CUTLASS_DEVICE static void consume(Cta const& cta, Arguments const& args, Element* out,
                                     EpilogueArgs<Element> const& epilogue) {
    constexpr int kHalves = kBoth ? 2 : 1;
    constexpr int kTokens = Traits::kRowTokens;
    int const warpgroup = cutlass::canonical_warp_group_idx();
    auto row_of = [&](int half) {
      return kBoth ? warpgroup * Traits::kMmaRows + Store::row(half) : Store::row(warpgroup);
    };
    bool const biased = kGeneral && epilogue.biased();
    Stage stage;
    uint32_t exchanges = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int number = int(blockIdx.y); number < cta.items; number += int(gridDim.y)) {
      Item const item = cta.item(number, args.rows);
      // Biases are loaded while the products run: X's arrival
      // implies that all earlier kernels have finished.
      float bias_first[kHalves] = {}, bias_second[kHalves] = {};
      if (biased) {
        cta.barriers.full[stage.index].wait(stage.phase);
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          int const n = item.n + row_of(half);
          // The first of the ranks adds it.
          if (cta.rank == 0) bias_first[half] = float(bias_of(epilogue.bias_first, n, args.n));
          if (Traits::kGated) bias_second[half] = float(bias_of(epilogue.bias_second, n, args.n));
        }
      }
      auto first = Loop::accumulators(), second = Loop::accumulators();
      Loop::template multiply<kBoth>(cta, stage, warpgroup, first, second);
      typename Store::Target const to{out + item.token * args.out_stride + item.n, args.out_stride,
                                      min(args.rows, args.n - item.n),
                                      min(Traits::kTokens, args.m - item.token)};
      bool const last = number + int(gridDim.y) >= cta.items;
      // A thread's sums: of gate and of up, or two parts of one.
      float one[kHalves][kTokens], other[kHalves][kTokens];
      if constexpr (kBoth) {
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < kTokens; ++i) {
            int const at = Store::accumulator(i, half);
            one[half][i] = first(at);
            other[half][i] = Traits::kGated ? second(at) : 0.0f;
          }
        }
      } else {
        Store::exchange(cta, warpgroup, first, one[0], other[0]);
      }
      if constexpr (!Traits::kGated) {
        auto sum = [&](int half, int i) {
          float const whole = kBoth ? one[half][i] : one[half][i] + other[half][i];
          return kGeneral ? whole + bias_first[half] : whole;
        };
        if (cta.ranks > 1) {
          Store::template reduce<kHalves>(cta, to, exchanges, last, row_of, sum);
        } else {
          Store::template store<kHalves>(to, row_of, sum);
        }
      } else if constexpr (!kGeneral) {
        SiLU silu;
        Store::template store<kHalves>(
            to, row_of, [&](int half, int i) { return silu(one[half][i]) * other[half][i]; });
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < kTokens; ++i) {
            one[half][i] += bias_first[half];
            other[half][i] += bias_second[half];
          }
        }
        dispatch_activation(epilogue, [&](auto combine) {
          CUTLASS_PRAGMA_UNROLL
          for (int half = 0; half < kHalves; ++half) {
            CUTLASS_PRAGMA_UNROLL
            for (int i = 0; i < kTokens; ++i) {
              one[half][i] = combine(one[half][i], other[half][i]);
            }
          }
        });
        Store::template store<kHalves>(to, row_of, [&](int half, int i) { return one[half][i]; });
      }
    }
  }
};

}  // namespace cuswiglu::decode
