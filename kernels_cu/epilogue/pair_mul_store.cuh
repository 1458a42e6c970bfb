// PairMulStore: a node of CUTLASS's SM90 epilogue visitor trees. The GEMM computes [M, 2N], gate
// and up columns interleaved; the node stores Y[M, N] = activation(gate) * up, alone.
//
// Use: make the tree, and give it to the epilogue's CollectiveBuilder as its FusionCallbacks:
//   using Node = cuswiglu::PairMulStore<2, EpilogueTile, 8>;  // stages, sub-tile, granularity
//   using Tree = cutlass::epilogue::fusion::Sm90EVT<Node, cutlass::epilogue::fusion::Sm90AccFetch>;
// ElementC and ElementD are void; schedule TmaWarpSpecialized with an EpilogueTile of 64 rows, or
// TmaWarpSpecializedCooperative with 128, by 32, 64 or 128 of the 2N columns (the builder needs the
// same one). Arguments of the tree: {{}, {ptr_out, {leading_stride, cute::_1{}}}}.
// While the arithmetic runs on one sub-tile, TMA stores the one before.
//
// Packed weights, with G = Granularity: of the 2N columns, [2Gj, 2Gj + G) are gate's [Gj, Gj + G),
// and [2Gj + G, 2Gj + 2G) are up's [Gj, Gj + G). G = 1: even columns gate, odd columns up. G = 8:
// gate and up take turns as the 8-column groups of WGMMA's accumulators, so that the result lies in
// registers as stmatrix wants it; prefer it to 1. Larger multiples of 8 work as well.
//
// Limits: the tree's input is FP32; Y is row-major, of a 2-byte type (rounded once, to nearest),
// its address and leading stride multiples of 16 bytes; N is a multiple of G; no batch (L = 1).
//
// Activation: of gate alone, which is then multiplied by up, or of both.
//
// Outside of CollectiveEpilogue: Descriptor = cute::TmaDescriptor const*, so that the device makes
// Params{&descriptor} itself, and store_tile() in place of the collective's loop. The descriptor's
// dimensions are (N, M), its box (kBoxColumns, kRows), its swizzle as wide as the box.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cute/atom/copy_traits_sm90_tma.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cutlass/array.h>
#include <cutlass/cutlass.h>
#include <cutlass/detail/layout.hpp>
#include <cutlass/numeric_conversion.h>
// Behind the one before, which it needs and does not include.
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>

#include "epilogue/activation.cuh"
#include "epilogue/tile_boxes.cuh"

namespace cuswiglu {

// Stages: shared-memory buffers of a result sub-tile, at least the collective's StagesD (so 2 do).
// Descriptor: cute::TmaDescriptor, held in Params, or a pointer to a const one.
template <int Stages, class EpilogueTile, int Granularity, class Activation = SiLU,
          class ElementOut = cutlass::bfloat16_t, class Descriptor = cute::TmaDescriptor>
struct PairMulStore {
  template <int kValue>
  using Int = cute::Int<kValue>;

  static_assert(cute::is_static_v<EpilogueTile> && cute::rank(EpilogueTile{}) == 2,
                "PairMulStore: EpilogueTile is a static (rows, columns of the 2N)");
  static constexpr int kRows = cute::size<0>(EpilogueTile{});
  static constexpr int kColumns = cute::size<1>(EpilogueTile{}) / 2;  // of the result
  static constexpr int kThreads = 2 * kRows;  // one warpgroup for every 64 rows
  static constexpr int kFragment = kRows * 2 * kColumns / kThreads;  // accumulators a thread
  static constexpr bool kEvenOdd = Granularity == 1;
  static constexpr bool kOwnsDescriptor = cute::is_same_v<Descriptor, cute::TmaDescriptor>;

  static_assert(Stages >= 1, "PairMulStore: the result needs a buffer in shared memory");
  static_assert(sizeof(ElementOut) == 2, "PairMulStore: stmatrix stores 2-byte elements");
  static_assert(kRows % 64 == 0, "PairMulStore: a warpgroup's WGMMA has 64 rows");
  static_assert(kColumns % 16 == 0,
                "PairMulStore: stmatrix x4 stores 16 columns of the result: make the EpilogueTile "
                "a multiple of 32 columns wide");
  static_assert(kEvenOdd || Granularity % 8 == 0,
                "PairMulStore: gate and up take turns by 1 column, or by a multiple of 8 (whole "
                "groups of WGMMA's accumulators)");
  static_assert(kColumns % Granularity == 0,
                "PairMulStore: an EpilogueTile must hold a gate column's up column too: make it a "
                "multiple of 2 * Granularity columns wide");
  static_assert(kOwnsDescriptor || cute::is_same_v<Descriptor, cute::TmaDescriptor const*>,
                "PairMulStore: Descriptor is cute::TmaDescriptor, or a pointer to a const one");

  // The widest TMA box, in columns, that tiles the sub-tile; its rows are one swizzle span.
  static constexpr int kBoxColumns = kColumns % 64 == 0 ? 64 : kColumns % 32 == 0 ? 32 : 16;

  using SmemLayoutAtom = cute::conditional_t<
      kBoxColumns == 64, cute::GMMA::Layout_K_SW128_Atom<ElementOut>,
      cute::conditional_t<kBoxColumns == 32, cute::GMMA::Layout_K_SW64_Atom<ElementOut>,
                          cute::GMMA::Layout_K_SW32_Atom<ElementOut>>>;
  using SmemLayoutBox =
      decltype(cute::tile_to_shape(SmemLayoutAtom{}, cute::Shape<Int<kRows>, Int<kBoxColumns>>{}));
  // Box after box, stage after stage.
  using SmemLayout = decltype(cute::tile_to_shape(
      SmemLayoutAtom{}, cute::Shape<Int<kRows>, Int<kColumns>, Int<Stages>>{},
      cute::Step<cute::_1, cute::_2, cute::_3>{}));

  //
  // The interface of a visitor: types and host functions
  //
  using ElementAux = ElementOut;  // by this name a collective without D learns what is stored
  using StrideOut = cute::Stride<int64_t, cute::_1>;

  struct SharedStorage {
    alignas(cutlass::detail::alignment_for_swizzle(
        SmemLayout{})) cute::ArrayEngine<ElementOut, cute::cosize_v<SmemLayout>> out;
  };

  struct Arguments {
    ElementOut* ptr_out = nullptr;
    StrideOut dOut = {};
  };

  struct Params {
    Descriptor tma_out;

    // The one place that knows where the descriptor is.
    CUTLASS_HOST_DEVICE cute::TmaDescriptor const* descriptor() const {
      if constexpr (kOwnsDescriptor) {
        return &tma_out;
      } else {
        return tma_out;
      }
    }
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(ProblemShape const& problem_shape, Arguments const& args,
                                        void* /* workspace */) {
    static_assert(kOwnsDescriptor,
                  "PairMulStore: with a pointer to the descriptor, make Params "
                  "yourself, as PairMulStore::Params{&descriptor}");
    auto out = cute::make_tensor(
        args.ptr_out, cute::make_layout(cute::make_shape(int(cute::get<0>(problem_shape)),
                                                         int(cute::get<1>(problem_shape)) / 2),
                                        args.dOut));
    auto const tma = cute::make_tma_copy(cute::SM90_TMA_STORE{}, out, SmemLayoutBox{});
    return {*tma.get_tma_descriptor()};
  }

  template <class ProblemShape>
  static bool can_implement(ProblemShape const& problem_shape, Arguments const& args) {
    auto const shape = cute::append<4>(problem_shape, 1);  // (M, 2N, K, L)
    int64_t const columns = cute::get<1>(shape);
    int64_t const leading = cute::get<0>(args.dOut);
    return cute::get<3>(shape) == 1 && columns % (2 * Granularity) == 0 && leading >= columns / 2 &&
           leading * int64_t(sizeof(ElementOut)) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args.ptr_out) % 16 == 0;
  }

  template <class ProblemShape>
  static size_t get_workspace_size(ProblemShape const&, Arguments const&) {
    return 0;
  }

  template <class ProblemShape>
  static cutlass::Status initialize_workspace(ProblemShape const&, Arguments const&, void*,
                                              cudaStream_t, cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  //
  // The interface of a visitor: device functions
  //
  Params const* params = nullptr;
  ElementOut* smem = nullptr;
  Activation activation;

  CUTLASS_HOST_DEVICE PairMulStore(Activation const& activation_ = {}) : activation(activation_) {}

  CUTLASS_HOST_DEVICE PairMulStore(Params const& params_, SharedStorage const& storage)
      : params(&params_), smem(const_cast<ElementOut*>(storage.out.begin())) {}

  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }

  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      cutlass::epilogue::fusion::detail::ProducerLoadArgs<Args...> const&) {
    return cutlass::epilogue::fusion::detail::EmptyProducerLoadCallbacks{};
  }

  // What a thread does for one tile. The result of a sub-tile waits in registers from visit() to
  // postreduce(), for a collective that delays its TMA stores issues the one before in between.
  template <class RegOut, class CopyOut, class SmemOut>
  struct ConsumerStoreCallbacks : cutlass::epilogue::fusion::detail::EmptyConsumerStoreCallbacks {
    RegOut reg_out;  // (copy, copies along M, copies along N)
    CopyOut copy_out;
    SmemOut smem_out;  // (copy, copies along M, copies along N, stage)
    ElementOut const* smem;
    cute::TmaDescriptor const* descriptor;
    Activation activation;
    int row;  // of Y, where the tile begins
    int column;

    CUTLASS_DEVICE ConsumerStoreCallbacks(RegOut const& reg_out_, CopyOut const& copy_out_,
                                          SmemOut const& smem_out_, ElementOut const* smem_,
                                          cute::TmaDescriptor const* descriptor_,
                                          Activation const& activation_, int row_, int column_)
        : reg_out(reg_out_),
          copy_out(copy_out_),
          smem_out(smem_out_),
          smem(smem_),
          descriptor(descriptor_),
          activation(activation_),
          row(row_),
          column(column_) {}

    // Where the gate of a thread's result `i` is in its fragment, and how far behind it the up.
    // Accumulators come as (2 columns, 2 rows, 8-column groups), and so do results; with even and
    // odd columns a result has one of the two columns, so they are (2 rows, 4-column groups).
    static constexpr int kUpBehindGate = kEvenOdd ? 1 : Granularity / 2;
    CUTLASS_DEVICE static constexpr int gate_of(int i) {
      if constexpr (kEvenOdd) {
        return 2 * i;
      } else {
        return i / kUpBehindGate * (2 * kUpBehindGate) + i % kUpBehindGate;
      }
    }

    template <class ElementAccumulator, class ElementInput, int FragmentSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<ElementAccumulator, FragmentSize> const&, int epi_v,
                              int, int, cutlass::Array<ElementInput, FragmentSize> const& input) {
      static_assert(cute::is_same_v<ElementInput, float>,
                    "PairMulStore: its input is the FP32 accumulators (Sm90AccFetch)");
      static_assert(FragmentSize % (kEvenOdd ? 4 : Granularity) == 0,
                    "PairMulStore: a fragment must hold a gate column's up column too: use an "
                    "EpilogueTile that one visit covers, no wider than the MMA tile");
      constexpr int kResults = FragmentSize / 2;
      auto result = [&](int i) {
        float const gate = input[gate_of(i)], up = input[gate_of(i) + kUpBehindGate];
        if constexpr (CUTE_STL_NAMESPACE::is_invocable_v<Activation const&, float, float>) {
          return activation(gate, up);
        } else {
          return activation(gate) * up;
        }
      };
      cutlass::NumericArrayConverter<ElementOut, float, 2> round;
      auto pairs = cute::recast<cutlass::Array<ElementOut, 2>>(cute::coalesce(reg_out));
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kResults; i += 2) {
        cutlass::Array<float, 2> y;
        y[0] = result(i);
        y[1] = result(i + 1);
        pairs((epi_v * kResults + i) / 2) = round(y);
      }
      return input;
    }

    CUTLASS_DEVICE void postreduce(int, int, int store_iteration, bool issue_smem_store) {
      if (issue_smem_store) {
        cute::copy(copy_out, reg_out,
                   smem_out(cute::_, cute::_, cute::_, store_iteration % Stages));
      }
    }

    // By one whole warp; the collective fences before, commits and waits after.
    CUTLASS_DEVICE void tma_store(int epi_m, int epi_n, int store_iteration, bool issue_tma_store) {
      if (issue_tma_store && cute::elect_one_sync()) {
        ElementOut const* stage = smem + store_iteration % Stages * (kRows * kColumns);
        CUTLASS_PRAGMA_UNROLL
        for (int box = 0; box < kColumns; box += kBoxColumns) {
          cute::SM90_TMA_STORE_2D::copy(descriptor, stage + box * kRows,
                                        column + epi_n * kColumns + box, row + epi_m * kRows);
        }
      }
    }
  };

  // A thread's results of a sub-tile, from registers to shared memory.
  template <class TiledMma>
  CUTLASS_DEVICE static auto make_copy_out([[maybe_unused]] TiledMma const& tiled_mma) {
    if constexpr (kEvenOdd) {
      // Of 8 columns a thread holds q and q + 4 (q = lane % 4); stmatrix wants 2q and 2q + 1. That
      // is a select, a shuffle and a permute for every two elements, before stmatrix. To store 2
      // bytes at a time keeps the load-store pipe as long (per 8 elements: 8 stores, against 4
      // shuffles and the 4 cycles of an x4 stmatrix), takes no more instructions, and waits for no
      // other lane. It meets no bank conflicts: 8 rows of 8 bytes, each in a 16-byte chunk of its
      // own, as swizzled. Either would hide behind the activation, which keeps the SM's special
      // functions busy for 32 cycles per 8 elements of a warp.
      using ThreadValue = cute::Layout<cute::Shape<cute::Shape<cute::_4, cute::_8, Int<kRows / 16>>,
                                                   cute::Shape<cute::_2, cute::_2>>,
                                       cute::Stride<cute::Stride<Int<kRows>, cute::_1, cute::_16>,
                                                    cute::Stride<cute::_8, Int<4 * kRows>>>>;
      using Atom = cute::Copy_Atom<cute::UniversalCopy<uint16_t>, ElementOut>;
      return cute::TiledCopy<Atom, ThreadValue, cute::Shape<Int<kRows>, cute::_8>>{};
    } else {
      // Gate's accumulators lie in a thread as those of a GEMM half as wide would: stmatrix's way.
      return cute::make_tiled_copy_C_atom(cute::Copy_Atom<cute::SM90_U32x4_STSM_N, ElementOut>{},
                                          tiled_mma);
    }
  }

  // The callbacks for the tile of Y that begins at (row, column). thread: among kThreads.
  template <class TiledMma>
  CUTLASS_DEVICE auto callbacks(TiledMma const& tiled_mma, int row, int column, int thread) const {
    static_assert(cute::size(TiledMma{}) == kThreads,
                  "PairMulStore: EpilogueTile has 64 rows for every warpgroup of the MMA: 64 in a "
                  "Pingpong kernel, 128 in a Cooperative one");
    auto copy_out = make_copy_out(tiled_mma);
    auto smem_tile = cute::as_position_independent_swizzle_tensor(
        cute::make_tensor(cute::make_smem_ptr(smem), SmemLayout{}));
    auto smem_out = copy_out.get_slice(thread).partition_D(smem_tile);
    auto reg_out = cute::make_tensor<ElementOut>(
        cute::take<0, 3>(cute::shape(copy_out.get_slice(thread).partition_S(smem_tile))));
    static_assert(cute::size<1>(typename decltype(reg_out)::layout_type{}) == 1,
                  "PairMulStore: an EpilogueTile is one MMA tile high");
    return ConsumerStoreCallbacks<decltype(reg_out), decltype(copy_out), decltype(smem_out)>(
        reg_out, copy_out, smem_out, smem, params->descriptor(), activation, row, column);
  }

  template <bool ReferenceSrc, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    static_assert(ReferenceSrc, "PairMulStore: accumulators must come as WGMMA leaves them");
    static_assert(cute::is_same_v<cute::remove_cvref_t<decltype(args.epi_tile)>, EpilogueTile>,
                  "PairMulStore: its EpilogueTile must be the collective's");
    int const row = int(cute::get<0>(args.tile_coord_mnkl)) * cute::size<0>(args.tile_shape_mnk);
    int const column =
        int(cute::get<1>(args.tile_coord_mnkl)) * (cute::size<1>(args.tile_shape_mnk) / 2);
    return callbacks(args.tiled_mma, row, column, args.thread_idx);
  }

  //
  // Outside of CollectiveEpilogue
  //

  // Stores the tile of Y that begins at (row, column), with one barrier a sub-tile. All of kThreads
  // threads call it. accum: ((2, 2, columns / 8), M, 1), of tiled_mma. sync(): their barrier.
  // count: sub-tiles stored from this shared memory so far. Of a tile that is no multiple of
  // EpilogueTile wide, the last two sub-tiles overlap.
  template <class Accumulators, class TiledMma, class Sync>
  CUTLASS_DEVICE void store_tile(Accumulators const& accum, TiledMma const& tiled_mma, int row,
                                 int column, int thread, Sync const& sync, int& count) const {
    static_assert(Stages >= 2, "PairMulStore: with one stage, a sub-tile would need two barriers");
    constexpr auto layout = typename Accumulators::layout_type{};
    constexpr int kTile = cute::size<0>(layout);           // accumulators of 64 rows
    constexpr int kTogether = kEvenOdd ? 4 : Granularity;  // of a gate and its up, or more
    static_assert(kTile >= kFragment && kTile % kTogether == 0 && cute::size<2>(layout) == 1,
                  "PairMulStore: the MMA tile must hold whole pairs, and be an EpilogueTile wide");
    auto store = callbacks(tiled_mma, row, column, thread);
    bool const issuing_warp = thread / 32 == 0;
    CUTLASS_PRAGMA_UNROLL
    for (int next = 0; next < kTile; next += kFragment) {
      int const first = box_start<kFragment, kTile>(next);
      store.column = column + first * kColumns / kFragment;
      CUTLASS_PRAGMA_UNROLL
      for (int epi_m = 0; epi_m < cute::size<1>(layout); ++epi_m, ++count) {
        cutlass::Array<float, kFragment> fragment;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kFragment; ++i) fragment[i] = accum(first + i, epi_m, 0);
        store.visit(fragment, 0, epi_m, 0, fragment);  // while TMA stores the sub-tile before
        store.postreduce(epi_m, 0, count, true);
        cute::tma_store_fence();
        // Behind this barrier the next sub-tile's stage is free: at most Stages - 2 stores, all of
        // other stages, still read, and the one issued now.
        if (issuing_warp) cute::tma_store_wait<Stages - 2>();
        sync();
        store.tma_store(epi_m, 0, count, issuing_warp);
        if (issuing_warp) cute::tma_store_arrive();
      }
    }
  }

  // Before the kernel ends, or gives this shared memory to others.
  CUTLASS_DEVICE static void drain(int thread) {
    if (thread / 32 == 0) cute::tma_store_wait<0>();
  }
};

}  // namespace cuswiglu
