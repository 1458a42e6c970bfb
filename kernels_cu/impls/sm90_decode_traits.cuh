// The decode kernel's sizes and shared memory: what is known at compile time, and what one CTA
// makes of the arguments.
#pragma once

#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include "common/stage.cuh"

namespace cuswiglu::decode {

using cute::Int;
using cute::Shape;
using Major = cute::GMMA::Major;

// Element: of all arrays, BF16 or FP16. kTokens: columns of the MMA; more tokens are walked in
// tiles of so many. kMajor: how the weights lie in memory.
template <class Element_, bool kGated_, int kTokens_, Major kMajor_>
struct DecodeTraits {
  using Element = Element_;
  static constexpr bool kGated = kGated_;
  static constexpr int kTokens = kTokens_;
  static constexpr Major kMajor = kMajor_;
  static constexpr int kBlockK = 64;  // one 128-byte swizzle span of BF16
  static constexpr int kRowBytes = kBlockK * int(sizeof(Element));
  // A step of K: two boxes of weights, of gate and of up, or of the only weight one behind another.
  static constexpr int kStepK = kGated ? kBlockK : 2 * kBlockK;
  static constexpr int kXBoxes = kStepK / kBlockK;
  static constexpr int kXBytes = kTokens * kRowBytes;
  static constexpr int kMmaRows = 64;
  static constexpr int kMaxStages = 32;
  static constexpr int kConsumerThreads = 256;
  static constexpr int kThreads = kConsumerThreads + 32;

  // A thread has two rows of a block of 64, eight apart, and of each two tokens of every eight.
  static constexpr int kRowTokens = kTokens / 4;
  // Floats that a warpgroup gives the other: [token of the thread][thread].
  static constexpr int kExchange = kRowTokens * 128;
  // Tokens whose sums go to another CTA at a time.
  static constexpr int kChunk = kTokens < 64 ? kTokens : 64;

  struct Barriers {
    cutlass::arch::ClusterTransactionBarrier full[kMaxStages];
    cutlass::arch::ClusterBarrier empty[kMaxStages];
    cutlass::arch::ClusterTransactionBarrier sums_full;
    cutlass::arch::ClusterBarrier sums_free;
  };
  static constexpr int kBarrierBytes = 1024;
  static_assert(sizeof(Barriers) <= kBarrierBytes);

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 Shape<Int<kMmaRows>, Int<kTokens>, Int<kBlockK>>, kMajor,
                                 Major::K>()));
  using SmemLayoutW = decltype(cute::tile_to_shape(
      cute::conditional_t<kMajor == Major::K, cute::GMMA::Layout_K_SW128_Atom<Element>,
                          cute::GMMA::Layout_MN_SW128_Atom<Element>>{},
      Shape<Int<kMmaRows>, Int<kBlockK>>{}));
  using SmemLayoutX = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                   Shape<Int<kTokens>, Int<kBlockK>>{}));
};

// A tile of the result: its first column and token.
struct Item {
  int n;
  int token;
};

// What a CTA has to do, and where everything is in its shared memory: barriers, `stages` times two
// boxes of weights and X, what the warpgroups exchange (later the sums to be sent), sums received.
template <class Traits>
struct Cta {
  using Element = typename Traits::Element;

  typename Traits::Barriers& barriers;
  unsigned char* ring;
  int rank;  // in the cluster
  int ranks;
  int first_step;  // of K: this rank's part
  int steps;
  int stages;
  int box_rows;      // of a TMA box of weights, along N
  int weight_bytes;  // room for a box of weights in a stage
  int stage_bytes;
  int token_tiles;
  int items;
  int share;  // of a tile's rows, those that one rank owns: a multiple of 4

  // Arguments: the kernel's, as build_scripts/variants/arguments.py lists them.
  template <class Arguments>
  CUTLASS_DEVICE Cta(unsigned char* smem, Arguments const& args)
      : barriers(*reinterpret_cast<typename Traits::Barriers*>(smem)),
        ring(smem + Traits::kBarrierBytes),
        rank(int(blockIdx.x)),  // the grid is (ranks, clusters)
        ranks(int(gridDim.x)),
        stages(args.stages) {
    int const all = (args.k + Traits::kStepK - 1) / Traits::kStepK;
    int const each = all / ranks, more = all % ranks;
    first_step = rank * each + (rank < more ? rank : more);
    steps = each + (rank < more ? 1 : 0);
    // Boxes along K have just the rows of a tile, and begin at whole swizzle atoms of 8 rows. Boxes
    // along N are 64 wide.
    constexpr int kAtom = Traits::kMajor == Major::K ? 8 : Traits::kMmaRows;
    int const room = (args.rows + kAtom - 1) / kAtom * kAtom;
    box_rows = Traits::kMajor == Major::K ? args.rows : room;
    weight_bytes = room * Traits::kRowBytes;
    stage_bytes = 2 * weight_bytes + Traits::kXBoxes * Traits::kXBytes;
    token_tiles = (args.m + Traits::kTokens - 1) / Traits::kTokens;
    items = (args.n + args.rows - 1) / args.rows * token_tiles;
    share = (args.rows + 4 * ranks - 1) / (4 * ranks) * 4;
  }

  // Tiles of the same weights follow each other, so that later ones find them in L2.
  CUTLASS_DEVICE Item item(int number, int rows) const {
    int const tile = number / token_tiles;
    return {tile * rows, (number - tile * token_tiles) * Traits::kTokens};
  }

  CUTLASS_DEVICE Element* weights(int stage, int which) const {
    return reinterpret_cast<Element*>(ring + stage * stage_bytes + which * weight_bytes);
  }
  CUTLASS_DEVICE Element* x(int stage, int which) const {
    return reinterpret_cast<Element*>(ring + stage * stage_bytes + 2 * weight_bytes +
                                      which * Traits::kXBytes);
  }
  CUTLASS_DEVICE float* exchanged() const {
    return reinterpret_cast<float*>(ring + stages * stage_bytes);
  }
  // Sums of a chunk: [owner][token][row of the owner], in the place of what was exchanged.
  CUTLASS_DEVICE float* sums_sent() const { return exchanged(); }
  // Sums of a chunk that this owner received, [rank][token][row].
  CUTLASS_DEVICE float* sums_received() const {
    int const sent = ranks * sum_floats(), exchange = 2 * Traits::kExchange;
    return exchanged() + (sent > exchange ? sent : exchange);
  }
  CUTLASS_DEVICE int sum_floats() const { return Traits::kChunk * share; }
};

CUTLASS_DEVICE void sync_consumers() { cutlass::arch::NamedBarrier::sync(256, 0); }

}  // namespace cuswiglu::decode
