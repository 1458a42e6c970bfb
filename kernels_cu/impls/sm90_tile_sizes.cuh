// A tile kernel's sizes: what follows from a row of the build's table, in plain integers. Compiles
// for the host too.
#pragma once

#include "common/host_device.cuh"

namespace cuswiglu {

// A number known at compile time.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

enum class Schedule { Pingpong, Cooperative };

// How weights lie in memory: along K (a checkpoint's (N, K) matrices seen transposed) or along N.
enum class Major { K, MN };

// Family: of families.cuh. kBlockM x kBlockN is the tile of the RESULT that one CTA computes;
// columns of tiles can be narrower by multiples of kNarrowing (0: they cannot), down to kNarrowest.
// kPacking: columns that gate and up take turns by in packed weights, else 0.
template <class Family, Schedule kSchedule_, int kBlockM_, int kBlockN_, int kClusterM_,
          int kStages_, int kOutStages_, Major kMajorB_, int kPacking_, int kNarrowing_,
          int kNarrowest_>
struct TileSizes {
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
  static_assert(Family::kPacked == (kPacking > 0), "packed weights interleave");

  static constexpr int kWeights = Family::kWeights;
  static constexpr int kPasses = Family::kPasses;
  static constexpr int kGates = Family::kGates;
  // Columns of one weight's tile; of B in a stage, and so of an accumulator.
  static constexpr int kWeightN = Family::kPacked ? 2 * kBlockN : kBlockN;
  static constexpr int kColumns = kWeights * kWeightN;
  static constexpr int kStageElementsB = kColumns * kBlockK;

  static constexpr int kConsumers = 2;  // warpgroups
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr bool kPingpong = kSchedule == Schedule::Pingpong;
  // Pingpong: a warpgroup owns a whole tile. Cooperative: half of its rows.
  static constexpr int kWarpgroupM = kPingpong ? kBlockM : kBlockM / kConsumers;

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

  // Sizes of a tile kWidth columns wide.
  template <int kWidth>
  struct WidthSizes {
    static constexpr int kColumns = kWidth * TileSizes::kColumns / kBlockN;  // of an accumulator
    // Gate and up in one WGMMA while that is at most 256 wide, else in one each.
    static constexpr int kMmaN = kColumns <= 256 ? kColumns : kWidth;
    // Gate's columns end where up's begin, so that one WGMMA covers both: where the tile is
    // narrower than a stage's room for gate, gate lies at that room's end.
    static constexpr int kFirstColumn = kWeights == 2 ? kBlockN - kWidth : 0;
  };

  // f(Constant<width>), for the width of a column of tiles: kWidth, or a narrower one.
  template <int kWidth = kBlockN, class F>
  CUSWIGLU_HOST_DEVICE static void for_width(int width, F f) {
    if constexpr (kWidth > kNarrowest) {
      if (width < kWidth) {
        for_width<kWidth - kNarrowing>(width, f);
        return;
      }
    }
    f(Constant<kWidth>{});
  }
};

}  // namespace cuswiglu
