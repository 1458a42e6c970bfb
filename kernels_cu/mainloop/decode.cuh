// The decode kernel's K loop: TMA loads of the weights and X into a ring of stages, and WGMMAs.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "common/launch.cuh"
#include "impls/sm90_decode_traits.cuh"

namespace cuswiglu::decode {

template <class Traits>
struct DecodeMainloop {
  using Element = typename Traits::Element;
  using Cta = Cta<Traits>;

  // ---- Producer, one thread ----

  // box(descriptor, which of the two, offset in its place, inner coordinate, outer coordinate).
  template <class Box>
  CUTLASS_DEVICE static void weight_boxes(Cta const& cta, int n, int step, InputMaps const& maps,
                                          Box box) {
    int const k = (cta.first_step + step) * Traits::kStepK;
    CUTLASS_PRAGMA_UNROLL
    for (int which = 0; which < 2; ++which) {
      auto const& map = which == 0 ? maps.first : maps.second;
      int const at = Traits::kGated ? k : k + which * Traits::kBlockK;
      if constexpr (Traits::kMajor == Major::K) {
        box(map, which, 0, at, n);
      } else {
        for (int row = 0; row < cta.box_rows; row += Traits::kMmaRows) {
          box(map, which, row * Traits::kBlockK, n + row, at);
        }
      }
    }
  }

  CUTLASS_DEVICE static void load_weights(Cta const& cta, int stage, int n, int step, int tokens,
                                          InputMaps const& maps) {
    auto& full = cta.barriers.full[stage];
    full.arrive_and_expect_tx((2 * cta.box_rows + Traits::kXBoxes * tokens) * Traits::kRowBytes);
    weight_boxes(cta, n, step, maps,
                 [&](cute::TmaDescriptor const& map, int which, int offset, int inner, int outer) {
      cute::SM90_TMA_LOAD_2D::copy(&map, reinterpret_cast<uint64_t*>(&full),
                                   uint64_t(cute::TMA::CacheHintSm90::EVICT_FIRST),
                                   cta.weights(stage, which) + offset, inner, outer);
    });
  }

  CUTLASS_DEVICE static void load_x(Cta const& cta, int stage, int token, int step,
                                    InputMaps const& maps) {
    CUTLASS_PRAGMA_UNROLL
    for (int which = 0; which < Traits::kXBoxes; ++which) {
      cute::SM90_TMA_LOAD_2D::copy(
          &maps.x, reinterpret_cast<uint64_t*>(&cta.barriers.full[stage]),
          uint64_t(cute::TMA::CacheHintSm90::EVICT_LAST), cta.x(stage, which),
          (cta.first_step + step) * Traits::kStepK + which * Traits::kBlockK, token);
    }
  }

  template <class Arguments>
  CUTLASS_DEVICE static void produce(Cta const& cta, Arguments const& args, InputMaps const& maps) {
    int const first = int(blockIdx.y);
    int const tokens = args.m < Traits::kTokens ? args.m : Traits::kTokens;  // of a TMA box of X
    int armed = 0;
    if (args.weights_ahead && first < cta.items) {
      int const n = cta.item(first, args.rows).n;
      int const early = min(cta.steps, cta.stages);
      CUTLASS_PRAGMA_NO_UNROLL
      for (; armed < early; ++armed) load_weights(cta, armed, n, armed, tokens, maps);
    }
    wait_for_work_ahead();
    Stage stage;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int number = first; number < cta.items; number += int(gridDim.y)) {
      Item const item = cta.item(number, args.rows);
      CUTLASS_PRAGMA_NO_UNROLL
      for (int step = 0; step < cta.steps; ++step) {
        if (armed > 0) {
          --armed;
        } else {
          cta.barriers.empty[stage.index].wait(stage.phase ^ 1);
          load_weights(cta, stage.index, item.n, step, tokens, maps);
        }
        load_x(cta, stage.index, item.token, step, maps);
        stage.next(cta.stages);
      }
    }
  }

  // ---- Consumers ----

  CUTLASS_DEVICE static auto accumulators() {
    return cute::partition_fragment_C(typename Traits::TiledMma{},
                                      Shape<Int<Traits::kMmaRows>, Int<Traits::kTokens>>{});
  }
  using Accumulators = decltype(accumulators());
  static_assert(cute::size(Accumulators{}) == 2 * Traits::kRowTokens, "64 rows by 128 threads");

  CUTLASS_DEVICE static void release(Cta const& cta, int stage) {
    if (cutlass::canonical_lane_idx() == 0) cta.barriers.empty[stage].arrive();
  }

  // Adds 64 rows of a box, from first_row on, times X.
  CUTLASS_DEVICE static void multiply_box(Cta const& cta, int stage, int which, int first_row,
                                          bool first_step, Accumulators& accum) {
    typename Traits::TiledMma mma;
    auto thread_mma = mma.get_slice(0);  // shared-memory operands: the same for every thread
    auto s_w = cute::make_tensor(
        cute::make_smem_ptr(cta.weights(stage, which) + first_row * Traits::kBlockK),
        typename Traits::SmemLayoutW{});
    auto s_x = cute::make_tensor(cute::make_smem_ptr(cta.x(stage, Traits::kGated ? 0 : which)),
                                 typename Traits::SmemLayoutX{});
    auto r_w = thread_mma.make_fragment_A(thread_mma.partition_A(s_w));  // (MMA, 1, K)
    auto r_x = thread_mma.make_fragment_B(thread_mma.partition_B(s_x));  // (MMA, 1, K)
    mma.accumulate_ = first_step ? cute::GMMA::ScaleOut::Zero : cute::GMMA::ScaleOut::One;
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < cute::size<2>(r_w); ++k) {
      cute::gemm(mma, r_w(cute::_, cute::_, k), r_x(cute::_, cute::_, k), accum);
      mma.accumulate_ = cute::GMMA::ScaleOut::One;
    }
  }

  // All steps of a tile; every rank has at least one. kBoth: 64 rows of both boxes, to `first` and
  // `second`, or to `first` alone if there is one weight. Else all rows of one box, to `first`.
  template <bool kBoth>
  CUTLASS_DEVICE static void multiply(Cta const& cta, Stage& stage, int warpgroup,
                                      Accumulators& first, Accumulators& second) {
    constexpr bool kTwo = kBoth && Traits::kGated;
    int previous = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int step = 0; step < cta.steps; ++step) {
      cta.barriers.full[stage.index].wait(stage.phase);
      cute::warpgroup_fence_operand(first);
      if constexpr (kTwo) cute::warpgroup_fence_operand(second);
      cute::warpgroup_arrive();
      if constexpr (kBoth) {
        int const row = warpgroup * Traits::kMmaRows;
        multiply_box(cta, stage.index, 0, row, step == 0, first);
        multiply_box(cta, stage.index, 1, row, kTwo && step == 0, kTwo ? second : first);
      } else {
        multiply_box(cta, stage.index, warpgroup, 0, step == 0, first);
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      cute::warpgroup_fence_operand(first);
      if constexpr (kTwo) cute::warpgroup_fence_operand(second);
      if (step > 0) release(cta, previous);
      previous = stage.index;
      stage.next(cta.stages);
    }
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(first);
    if constexpr (kTwo) cute::warpgroup_fence_operand(second);
    release(cta, previous);
  }
};

}  // namespace cuswiglu::decode
