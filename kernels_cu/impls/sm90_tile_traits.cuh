// Everything about a tile kernel that is known at compile time: element, MMAs, layouts, shared
// memory. Its sizes are in sm90_tile_sizes.cuh.
#pragma once

#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include "families.cuh"
#include "impls/sm90_tile_sizes.cuh"

namespace cuswiglu {

using cute::_;
using cute::Int;
using cute::Shape;
using cute::Step;

// Element: of all arrays, BF16 or FP16.
template <class Element_, class Family_, Schedule kSchedule, int kBlockM_, int kBlockN_,
          int kClusterM, int kStages_, int kOutStages_, Major kMajorB_, int kPacking,
          int kNarrowing, int kNarrowest>
struct TileTraits : TileSizes<Family_, kSchedule, kBlockM_, kBlockN_, kClusterM, kStages_,
                              kOutStages_, kMajorB_, kPacking, kNarrowing, kNarrowest> {
  using Element = Element_;
  using Family = Family_;
  using Sizes = TileSizes<Family, kSchedule, kBlockM_, kBlockN_, kClusterM, kStages_, kOutStages_,
                          kMajorB_, kPacking, kNarrowing, kNarrowest>;
  static_assert(sizeof(Element) == 2, "BF16 or FP16");
  using Sizes::kBlockK;
  using Sizes::kBlockM;
  using Sizes::kBlockN;
  using Sizes::kBoxN;
  using Sizes::kConsumers;
  using Sizes::kMmaM;
  using Sizes::kOutBoxN;
  using Sizes::kOutStages;
  using Sizes::kStages;
  static constexpr bool kMajorIsK = Sizes::kMajorB == Major::K;

  // Registers after the split at kernel entry (65536 / 384 threads = 168 each).
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;

  template <int kN, cute::GMMA::Major kMajor>
  using MmaFor = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Shape<Int<kMmaM>, Int<kN>, Int<kBlockK>>,
                                 cute::GMMA::Major::K, kMajor>()));
  // The MMA as wide as a box of the result: gives the register-to-shared-memory copy its layout.
  using TiledMmaOut = MmaFor<kOutBoxN, cute::GMMA::Major::K>;

  // What computes a tile kWidth columns wide.
  template <int kWidth>
  struct Width : Sizes::template WidthSizes<kWidth> {
    static constexpr int kMmaN = Sizes::template WidthSizes<kWidth>::kMmaN;
    using TiledMma = MmaFor<kMmaN, kMajorIsK ? cute::GMMA::Major::K : cute::GMMA::Major::MN>;
    static_assert(cute::size<1>(typename TiledMma::Shape_MNK{}) == kMmaN,
                  "no WGMMA of that width: CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED adds them");
  };

  using NMajorAtom = cute::conditional_t<kBoxN == 64, cute::GMMA::Layout_MN_SW128_Atom<Element>,
                                         cute::GMMA::Layout_MN_SW64_Atom<Element>>;

  using SmemLayoutA =
      decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                   Shape<Int<kBlockM>, Int<kBlockK>, Int<kStages>>{}));
  // Dual: rows [0, kBlockN) hold gate, [kBlockN, 2 kBlockN) up. Since an accumulator's columns j
  // and j + kBlockN sit in the same thread, gate and up meet in registers.
  template <int kRows>
  using SmemLayoutBStage = decltype(cute::tile_to_shape(
      cute::conditional_t<kMajorIsK, cute::GMMA::Layout_K_SW128_Atom<Element>, NMajorAtom>{},
      Shape<Int<kRows>, Int<kBlockK>>{},
      cute::conditional_t<kMajorIsK, Step<cute::_1, cute::_2>, Step<cute::_2, cute::_1>>{}));
  using SmemLayoutOut = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW64_Atom<Element>{},
                                                     Shape<Int<kMmaM>, Int<kOutBoxN>>{}));

  // Biases of one tile's columns: gate's and up's, or the only weight's.
  using Biases = Element[Sizes::kGates][kBlockN];

  struct SharedStorage {
    alignas(1024) Element a[cute::cosize_v<SmemLayoutA>];
    alignas(1024) Element b[kStages * Sizes::kStageElementsB];
    alignas(1024) Element out[kConsumers][kOutStages * cute::cosize_v<SmemLayoutOut>];
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
    alignas(4) Biases biases[kConsumers];  // used where a launch has any
  };
  static_assert(cute::cosize_v<SmemLayoutOut> * sizeof(Element) % 1024 == 0, "swizzle atoms");
  static_assert(sizeof(SharedStorage) <= 227 * 1024, "more shared memory than an SM has");
};

}  // namespace cuswiglu
