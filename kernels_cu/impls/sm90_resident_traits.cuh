// Everything about a resident kernel that is known at compile time, and where a CTA keeps what.
#pragma once

#include "common/stage.cuh"
#include "impls/sm90_tile_traits.cuh"

namespace cuswiglu::resident {

// A tile of 64 rows of X and 64 columns of both weights, as sm90_tile_traits.cuh has it, with room
// for X and weights as a launch needs it.
template <class Element_, Major kMajorB_>
struct ResidentTraits
    : TileTraits<Element_, Dual, Schedule::Pingpong, 64, 64, 1, 1, 2, kMajorB_, 0, 0, 64> {
  using Element = Element_;
  using Tile = TileTraits<Element, Dual, Schedule::Pingpong, 64, 64, 1, 1, 2, kMajorB_, 0, 0, 64>;
  using TiledMma = typename Tile::template Width<Tile::kBlockN>::TiledMma;

  static constexpr int kConsumers = 4;  // warpgroups
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Registers after the split at kernel entry (65536 / 640 threads, in eights: 96 each).
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 112;

  static constexpr int kMaxStages = 16;  // rows of tiles of X
  static constexpr int kMaxSlices = 8;   // columns of tiles of the weights
  static constexpr int kMostShared = 227 * 1024;
  // A step of K: of a row of tiles of X; of both weights, for a column of tiles.
  static constexpr int kStepElementsX = Tile::kBlockM * Tile::kBlockK;
  static constexpr int kStepElementsB = Tile::kStageElementsB;

  using SmemLayoutX = decltype(cute::tile_to_shape(
      cute::GMMA::Layout_K_SW128_Atom<Element>{}, Shape<Int<Tile::kBlockM>, Int<Tile::kBlockK>>{}));
  using SmemLayoutB = typename Tile::template SmemLayoutBStage<Tile::kColumns>;

  // A warp's 16 rows of a tile of the result: a TMA box of its own.
  static constexpr int kOutRows = 16;
  static_assert(Tile::kBlockN * sizeof(Element) == 128, "a row of a box is a swizzle's span");

  struct Fixed {
    alignas(1024) Element out[kConsumers * 4][kOutRows * Tile::kBlockN];
    alignas(4) typename Tile::Biases biases[kMaxSlices];  // used where a launch has any
    cutlass::arch::ClusterTransactionBarrier weights;
    cutlass::arch::ClusterTransactionBarrier full[kMaxStages];
    cutlass::arch::ClusterBarrier empty[kMaxStages];
  };
  static constexpr int kFixedBytes = (int(sizeof(Fixed)) + 1023) / 1024 * 1024;
};

// Where everything is in a CTA's shared memory: boxes of the result, biases and barriers; for each
// of its columns of tiles, all steps of K of the weights; then the stages of X.
template <class Traits>
struct Cta {
  using Element = typename Traits::Element;

  typename Traits::Fixed& fixed;
  Element* kept;
  Element* ring;
  int k_tiles;
  int stages;

  template <class Arguments>
  CUTLASS_DEVICE Cta(unsigned char* smem, int slices, Arguments const& args)
      : fixed(*reinterpret_cast<typename Traits::Fixed*>(smem)),
        kept(reinterpret_cast<Element*>(smem + Traits::kFixedBytes)),
        k_tiles((args.k + Traits::kBlockK - 1) / Traits::kBlockK),
        stages(args.stages) {
    ring = kept + slices * k_tiles * Traits::kStepElementsB;
  }

  // Where a step of K begins.
  CUTLASS_DEVICE Element* weights(int slice, int k_tile) const {
    return kept + (slice * k_tiles + k_tile) * Traits::kStepElementsB;
  }
  CUTLASS_DEVICE Element* x(int stage, int k_tile) const {
    return ring + (stage * k_tiles + k_tile) * Traits::kStepElementsX;
  }
};

}  // namespace cuswiglu::resident
