// Everything about a swapped tile kernel that is known at compile time, and what one CTA makes of
// the arguments.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include "common/named_barriers.cuh"
#include "common/stage.cuh"
#include "impls/sm90_tile_sizes.cuh"
#include "scheduler/swapped.cuh"

namespace cuswiglu::swapped {

using cute::_;
using cute::Int;
using cute::Shape;

// Element: of all arrays, BF16 or FP16. kGated: gate and up, else one weight. kClusterN: CTAs of a
// cluster: of two, they lie along N, and share X; of more, they share each tile along K. kMajor: how
// the weights lie in memory. A column of tiles may have from kFewest to kMost tokens, in steps of 8.
template <class Element_, bool kGated_, int kClusterN_, Major kMajor_, int kFewest_, int kMost_>
struct SwappedTraits {
  using Element = Element_;
  static constexpr bool kGated = kGated_;
  static constexpr int kClusterN = kClusterN_;
  // Whether all tiles are cut along K; and CTAs that share X.
  static constexpr bool kSplitsAll = kClusterN > 2;
  static constexpr int kSharers = kSplitsAll ? 1 : kClusterN;
  static constexpr Major kMajor = kMajor_;
  static constexpr int kFewest = kFewest_;
  static constexpr int kMost = kMost_;
  static constexpr int kStep = SwappedScheduler::kStep;  // of a WGMMA's N
  static_assert(kMost % kStep == 0 && kFewest % kStep == 0 && kMost <= 208, "WGMMAs, registers");

  static constexpr int kBlockK = 64;   // one 128-byte swizzle span of BF16
  static constexpr int kMmaRows = 64;  // of a WGMMA: rows of a box of weights, at most
  static constexpr int kRowBytes = kBlockK * int(sizeof(Element));
  static constexpr int kConsumers = kConsumerWarpgroups;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Registers after the split at kernel entry (65536 / 384 threads = 168 each).
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;

  static constexpr int kMaxStages = 12;
  static constexpr int kWeightBytes = kMmaRows * kRowBytes;  // of a box
  // The result leaves by boxes of 64 columns and 8 tokens, so many tokens at a time.
  static constexpr int kOutTokens = 32;
  static constexpr int kOutBoxTokens = 8;
  static constexpr int kOutElements = kOutTokens * kMmaRows;
  static constexpr int kOutStages = 2;

  static constexpr cute::GMMA::Major kMajorW =
      kMajor == Major::K ? cute::GMMA::Major::K : cute::GMMA::Major::MN;
  // WGMMA of so many tokens.
  template <int kTokens>
  using Mma = decltype(cute::GMMA::ss_op_selector<Element, Element, float,
                                                  Shape<Int<kMmaRows>, Int<kTokens>, Int<kBlockK>>,
                                                  kMajorW, cute::GMMA::Major::K>());
  // Its operands in a stage. Descriptors of X are the same for any number of tokens, from 16 on.
  using SmemLayoutW = decltype(cute::tile_to_shape(
      cute::conditional_t<kMajor == Major::K, cute::GMMA::Layout_K_SW128_Atom<Element>,
                          cute::GMMA::Layout_MN_SW128_Atom<Element>>{},
      Shape<Int<kMmaRows>, Int<kBlockK>>{}));
  using SmemLayoutX = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                   Shape<Int<kMmaRows>, Int<kBlockK>>{}));
  using TiledMma = decltype(cute::make_tiled_mma(Mma<kMmaRows>{}));

  struct Fixed {
    alignas(1024) Element out[kConsumers][kOutStages][kOutElements];
    cutlass::arch::ClusterTransactionBarrier full[kMaxStages];
    cutlass::arch::ClusterBarrier empty[kMaxStages];
    // Of a tile that is cut along K: sums sent have arrived, and the peers have room for them.
    cutlass::arch::ClusterTransactionBarrier sums_full;
    cutlass::arch::ClusterBarrier sums_free;
  };
  static constexpr int kFixedBytes = (int(sizeof(Fixed)) + 1023) / 1024 * 1024;
};

// Where everything is in a CTA's shared memory: result boxes and barriers, then `stages` times two
// boxes of weights and one of X.
template <class Traits>
struct Cta {
  using Element = typename Traits::Element;

  typename Traits::Fixed& fixed;
  unsigned char* ring;
  int rank;  // in the cluster
  int stages;
  int rows;    // of a TMA box of weights
  int x_rows;  // of a TMA box of X: of the widest tiles, or this CTA's share of them
  int share;   // of the tokens of the widest tiles, for each CTA of the cluster
  int stage_bytes;
  int loaded_bytes;  // of a stage, less the rows that a box of weights leaves free

  template <class Arguments>
  CUTLASS_DEVICE Cta(unsigned char* smem, Arguments const& args)
      : fixed(*reinterpret_cast<typename Traits::Fixed*>(smem)),
        ring(smem + Traits::kFixedBytes),
        rank(Traits::kClusterN > 1 ? int(cute::block_rank_in_cluster()) : 0),
        stages(args.stages),
        rows(args.rows),
        x_rows(part_of(args.width, Traits::kSharers)),
        share(part_of(args.width, Traits::kClusterN)),
        stage_bytes(2 * Traits::kWeightBytes + Traits::kSharers * x_rows * Traits::kRowBytes),
        loaded_bytes(stage_bytes - 2 * (Traits::kMmaRows - rows) * Traits::kRowBytes) {}

  // Tokens that each of `parts` has, in whole steps.
  CUTLASS_DEVICE static int part_of(int tokens, int parts) {
    return (tokens / Traits::kStep + parts - 1) / parts * Traits::kStep;
  }

  // Of the result, in a tile.
  CUTLASS_DEVICE int columns() const { return Traits::kGated ? rows : 2 * rows; }

  CUTLASS_DEVICE Element* weights(int stage, int which) const {
    return reinterpret_cast<Element*>(ring + stage * stage_bytes + which * Traits::kWeightBytes);
  }
  // Sums that the peers sent, in the place of the stages.
  CUTLASS_DEVICE float4* sums() const { return reinterpret_cast<float4*>(ring); }
  CUTLASS_DEVICE Element* x(int stage) const {
    return reinterpret_cast<Element*>(ring + stage * stage_bytes + 2 * Traits::kWeightBytes);
  }
};

}  // namespace cuswiglu::swapped
