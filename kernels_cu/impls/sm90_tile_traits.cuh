// Everything about an instance that is known at compile time: tile, layouts, shared memory.
#pragma once

#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

namespace cuswiglu {

using cute::_;
using cute::Int;
using cute::Shape;
using cute::Step;
using Major = cute::GMMA::Major;

enum class Schedule { Pingpong, Cooperative };

// What a kernel does with its weights.
//   Dual  gate and up tiles share one stage, and one WGMMA covers both
//   Sync  (the paper's Kernel-1) all of gate's K, the activation, then all of up's K; with extras
//         the activation behind both
//   SyncLate, SyncBare  Sync with the activation after up's K, and without one: not in the package,
//         only to be timed beside it
//   Interleave  (the paper's Kernel-2) one packed matrix, gate and up by turns of columns
//   Plain one weight matrix, no activation: the down projection
enum class Family { Dual, Sync, SyncLate, SyncBare, Interleave, Plain };

// Element: of all arrays, BF16 or FP16. kBlockM x kBlockN is the tile of the RESULT that one CTA
// computes; columns of tiles can be narrower by multiples of kNarrowing (0: they cannot), down to
// kNarrowest. kMajorB: how weights lie in memory, along K (a checkpoint's (N, K) matrices seen
// transposed) or along N. kPacking: columns that gate and up take turns by in packed weights, else 0.
template <class Element_, Family kFamily_, Schedule kSchedule_, int kBlockM_, int kBlockN_,
          int kClusterM_, int kStages_, int kOutStages_, Major kMajorB_, int kPacking_,
          int kNarrowing_, int kNarrowest_>
struct Traits {
  using Element = Element_;
  static_assert(sizeof(Element) == 2, "BF16 or FP16");
  static constexpr Family kFamily = kFamily_;
  static constexpr Schedule kSchedule = kSchedule_;
  static constexpr int kBlockM = kBlockM_;
  static constexpr int kBlockN = kBlockN_;
  static constexpr int kBlockK = 64;  // one 128-byte swizzle span of BF16
  static constexpr int kClusterM = kClusterM_;
  static constexpr int kStages = kStages_;
  static constexpr int kOutStages = kOutStages_;
  static constexpr Major kMajorB = kMajorB_;
  static constexpr int kPacking = kPacking_;
  static constexpr int kNarrowing = kNarrowing_;
  static constexpr int kNarrowest = kNarrowest_;
  static_assert(kNarrowing == 0 ? kNarrowest == kBlockN : (kBlockN - kNarrowest) % kNarrowing == 0,
                "widths are whole steps apart");
  static_assert((kFamily == Family::Interleave) == (kPacking > 0), "packed weights interleave");

  // Weight tiles side by side in a stage, and walks over K for one tile of the result.
  static constexpr int kWeights = kFamily == Family::Dual ? 2 : 1;
  static constexpr bool kTwoPasses = kFamily == Family::Sync || kFamily == Family::SyncLate ||
                                     kFamily == Family::SyncBare;
  static constexpr int kPasses = kTwoPasses ? 2 : 1;
  // Columns of one weight's tile; of B in a stage, and so of an accumulator.
  static constexpr int kWeightN = kFamily == Family::Interleave ? 2 * kBlockN : kBlockN;
  static constexpr int kColumns = kWeights * kWeightN;

  static constexpr int kConsumers = 2;  // warpgroups
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr bool kPingpong = kSchedule == Schedule::Pingpong;
  // Pingpong: a warpgroup owns a whole tile. Cooperative: half of its rows.
  static constexpr int kWarpgroupM = kPingpong ? kBlockM : kBlockM / kConsumers;
  // Registers after the split at kernel entry (65536 / 384 threads = 168 each).
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;

  static constexpr int kMmaM = 64;  // rows of a WGMMA, and of a TMA box of the result

  static_assert(kWarpgroupM % kMmaM == 0, "a WGMMA has 64 rows");
  static_assert(kBlockN % 8 == 0, "a WGMMA's width is a multiple of 8");
  static_assert(kWarpgroupM * kColumns * kPasses / 128 <= 192, "more accumulators spill");
  // CTAs of a cluster need the same weights, and each loads its share for all: of two, one loads
  // gate and the other up; else each a slice.
  static constexpr bool kWeightEach = kWeights == 2 && kClusterM == 2;
  static constexpr int kSlices = kWeightEach ? 1 : kClusterM;
  static_assert(kWeightN / kSlices % 8 == 0, "a multicast slice is whole swizzle atoms");
  static_assert(kMajorB == Major::K || kBlockN % 32 == 0, "N-major boxes are 64 or 32 wide");
  // Whether TMA boxes of weights have just the columns of a launch's widest tiles.
  static constexpr bool kFittedBoxes =
      kWeights == 2 && kSlices == 1 && kNarrowing > 0 && kMajorB == Major::K;

  // Columns of a TMA box of N-major weights: a swizzle's span.
  static constexpr int kBoxN = kBlockN % 64 == 0 ? 64 : kBlockN % 32 == 0 ? 32 : kBlockN;
  // Columns of a TMA box of the result: few, so that its buffers leave room for stages.
  static constexpr int kOutBoxN = 32;
  static_assert(kBlockN >= kOutBoxN, "a tile's last box begins inside it");
  static_assert(kNarrowing % (kMajorB == Major::K ? 8 : kBoxN) == 0, "whole atoms of weights");
  static_assert(kPacking == 0 || kNarrowing % kPacking == 0, "whole turns of packed weights");

  template <int kRows, int kN, Major kMajor>
  using MmaFor = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 Shape<Int<kRows>, Int<kN>, Int<kBlockK>>, Major::K, kMajor>()));
  // As wide as a box of the result: gives the register-to-shared-memory copy its layout.
  using TiledMmaOut = MmaFor<kMmaM, kOutBoxN, Major::K>;

  // Of a tile kWidth wide.
  template <int kWidth>
  struct Width {
    static constexpr int kColumns = kWidth * Traits::kColumns / kBlockN;  // of an accumulator
    // Gate and up in one WGMMA while that is at most 256 wide, else in one each.
    static constexpr int kMmaN = kColumns <= 256 ? kColumns : kWidth;
    using TiledMma = MmaFor<kMmaM, kMmaN, kMajorB>;
    static_assert(cute::size<1>(typename TiledMma::Shape_MNK{}) == kMmaN,
                  "no WGMMA of that width: CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED adds them");
    // Gate's columns end where up's begin, so that one WGMMA covers both: where the tile is
    // narrower than a stage's room for gate, gate lies at that room's end.
    static constexpr int kFirstColumn = kWeights == 2 ? kBlockN - kWidth : 0;
  };

  using NMajorAtom = cute::conditional_t<kBoxN == 64, cute::GMMA::Layout_MN_SW128_Atom<Element>,
                                         cute::GMMA::Layout_MN_SW64_Atom<Element>>;

  using SmemLayoutA = decltype(cute::tile_to_shape(
      cute::GMMA::Layout_K_SW128_Atom<Element>{},
      Shape<Int<kBlockM>, Int<kBlockK>, Int<kStages>>{}));
  // Dual: rows [0, kBlockN) hold gate, [kBlockN, 2 kBlockN) up. Since an accumulator's columns j
  // and j + kBlockN sit in the same thread, gate and up meet in registers.
  template <int kRows>
  using SmemLayoutBStage = decltype(cute::tile_to_shape(
      cute::conditional_t<kMajorB == Major::K, cute::GMMA::Layout_K_SW128_Atom<Element>,
                          NMajorAtom>{},
      Shape<Int<kRows>, Int<kBlockK>>{},
      cute::conditional_t<kMajorB == Major::K, Step<cute::_1, cute::_2>,
                          Step<cute::_2, cute::_1>>{}));
  static constexpr int kStageElementsB = kColumns * kBlockK;
  using SmemLayoutOut = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW64_Atom<Element>{},
                                                     Shape<Int<kMmaM>, Int<kOutBoxN>>{}));

  // Of a tile's columns: of gate and of up, or of the only weight.
  static constexpr int kGates = kFamily == Family::Plain ? 1 : 2;
  using Biases = Element[kGates][kBlockN];

  struct SharedStorage {
    alignas(1024) Element a[cute::cosize_v<SmemLayoutA>];
    alignas(1024) Element b[kStages * kStageElementsB];
    alignas(1024) Element out[kConsumers][kOutStages * cute::cosize_v<SmemLayoutOut>];
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
    alignas(4) Biases biases[kConsumers];  // where a launch has any
  };
  static_assert(cute::cosize_v<SmemLayoutOut> * sizeof(Element) % 1024 == 0, "swizzle atoms");
  static_assert(sizeof(SharedStorage) <= 227 * 1024, "more shared memory than an SM has");
};

}  // namespace cuswiglu
