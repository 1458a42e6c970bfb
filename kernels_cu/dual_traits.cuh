// Everything about a dual instance that is known at compile time: tile, layouts, shared memory.
#pragma once

#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/bfloat16.h>

namespace cuswiglu {

using cute::_;
using cute::Int;
using cute::Shape;
using cute::Step;
using Major = cute::GMMA::Major;

enum class Schedule { Pingpong, Cooperative };

// kBlockM x kBlockN is the tile of the RESULT that one CTA computes; its accumulators are twice as
// wide (gate and up). kMajorB: how both weights lie in memory, along K (a checkpoint's (N, K)
// matrices seen transposed) or along N.
template <Schedule kSchedule_, int kBlockM_, int kBlockN_, int kClusterM_, int kClusterN_,
          int kStages_, Major kMajorB_>
struct DualTraits {
  using Element = cutlass::bfloat16_t;
  static constexpr Schedule kSchedule = kSchedule_;
  static constexpr int kBlockM = kBlockM_;
  static constexpr int kBlockN = kBlockN_;
  static constexpr int kBlockK = 64;  // one 128-byte swizzle span of BF16
  static constexpr int kClusterM = kClusterM_;
  static constexpr int kClusterN = kClusterN_;
  static constexpr int kClusterSize = kClusterM * kClusterN;
  static constexpr int kStages = kStages_;
  static constexpr Major kMajorB = kMajorB_;

  static constexpr int kConsumers = 2;  // warpgroups
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr bool kPingpong = kSchedule == Schedule::Pingpong;
  // Pingpong: a warpgroup owns a whole tile. Cooperative: half of its rows.
  static constexpr int kWarpgroupM = kPingpong ? kBlockM : kBlockM / kConsumers;
  // Registers after the split at kernel entry (65536 / 384 threads = 168 each).
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;

  static_assert(kWarpgroupM % 64 == 0, "a WGMMA has 64 rows");
  static_assert(kBlockN % 16 == 0, "stmatrix x4 writes 16 columns at a time");
  static_assert(2 * kBlockN <= 256, "gate and up share one WGMMA, at most 256 columns wide");
  static_assert(kWarpgroupM * kBlockN * 2 / 128 <= 192, "more accumulators than that spill");
  static_assert(kClusterM == 1 || kClusterN == 1, "every CTA of a cluster is a multicast peer");
  static_assert(kBlockN / kClusterM % 8 == 0, "a multicast slice is whole swizzle atoms");
  static_assert(kBlockM / kClusterN % 8 == 0, "a multicast slice is whole swizzle atoms");

  // The widest TMA box, in columns, that tiles kBlockN: the store's boxes, and N-major loads'.
  static constexpr int kBoxN = kBlockN % 64 == 0 ? 64 : kBlockN % 32 == 0 ? 32 : 16;

  using WarpgroupTile = Shape<Int<kWarpgroupM>, Int<2 * kBlockN>, Int<kBlockK>>;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, WarpgroupTile, Major::K, kMajorB>()));
  // Same shape as the result's tile: gives the register-to-shared-memory copy its layout.
  using TiledMmaOut = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 Shape<Int<kWarpgroupM>, Int<kBlockN>, Int<kBlockK>>, Major::K,
                                 Major::K>()));

  template <int kColumns>
  using KMajorAtom = cute::conditional_t<
      kColumns == 64, cute::GMMA::Layout_K_SW128_Atom<Element>,
      cute::conditional_t<kColumns == 32, cute::GMMA::Layout_K_SW64_Atom<Element>,
                          cute::GMMA::Layout_K_SW32_Atom<Element>>>;
  using NMajorAtom = cute::conditional_t<
      kBoxN == 64, cute::GMMA::Layout_MN_SW128_Atom<Element>,
      cute::conditional_t<kBoxN == 32, cute::GMMA::Layout_MN_SW64_Atom<Element>,
                          cute::GMMA::Layout_MN_SW32_Atom<Element>>>;

  using SmemLayoutA = decltype(cute::tile_to_shape(
      cute::GMMA::Layout_K_SW128_Atom<Element>{},
      Shape<Int<kBlockM>, Int<kBlockK>, Int<kStages>>{}));
  // Rows [0, kBlockN) hold gate, [kBlockN, 2 kBlockN) up: one WGMMA covers both, and since an
  // accumulator's columns j and j + kBlockN sit in the same thread, gate and up meet in registers.
  using SmemLayoutB = decltype(cute::tile_to_shape(
      cute::conditional_t<kMajorB == Major::K, cute::GMMA::Layout_K_SW128_Atom<Element>,
                          NMajorAtom>{},
      Shape<Int<2 * kBlockN>, Int<kBlockK>, Int<kStages>>{},
      cute::conditional_t<kMajorB == Major::K, Step<cute::_1, cute::_2, cute::_3>,
                          Step<cute::_2, cute::_1, cute::_3>>{}));
  using SmemLayoutOut = decltype(cute::tile_to_shape(
      KMajorAtom<kBoxN>{}, Shape<Int<kWarpgroupM>, Int<kBlockN>>{}, Step<cute::_1, cute::_2>{}));

  static constexpr int kStageBytes = (kBlockM + 2 * kBlockN) * kBlockK * int(sizeof(Element));

  struct SharedStorage {
    alignas(1024) Element a[cute::cosize_v<SmemLayoutA>];
    alignas(1024) Element b[cute::cosize_v<SmemLayoutB>];
    alignas(1024) Element out[kConsumers][cute::cosize_v<SmemLayoutOut>];
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
    cutlass::arch::ClusterBarrier turn[kConsumers];
  };
  static_assert(sizeof(SharedStorage) <= 227 * 1024, "more shared memory than an SM has");
};

}  // namespace cuswiglu
