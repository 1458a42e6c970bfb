// The epilogue of all that is not only SiLU: biases, other activations. A loop over groups of
// columns, which epilogue.cuh unrolls: so all activations fit in one kernel.
#pragma once

#include "activation.cuh"
#include "epilogue.cuh"
#include "traits.cuh"

namespace cuswiglu {

template <class Traits>
struct GatedStore {
  using Element = typename Traits::Element;
  using Asked = Gating<Element>;
  using Biases = typename Traits::Biases;
  static constexpr bool kTurns = Traits::kPacking == 1;  // gate and up, by single columns
  static_assert(Traits::kPacking == 0 || kTurns || Traits::kPacking == 8,
                "gate and up take turns by WGMMA's columns");
  // Of one weight a thread has, of 64 rows and 8 columns, two columns of two rows.
  static constexpr int kGroup = 4;
  // Groups taken at a time: more, and registers run out; fewer wait for each other's arithmetic.
  static constexpr int kGroups = 2;
  static constexpr int kCount = kGroups * kGroup;
  static constexpr int kColumns = kGroups * 8;
  static_assert(Traits::kOutBoxN % kColumns == 0, "they share a box");

  // A thread's sums.
  struct Sums {
    float first[kCount];   // gate's, or the only weight's
    float second[kCount];  // up's
  };

  // f(Int<i>) for the i of [kFirst, kEnd) that `i` is.
  template <int kFirst, int kEnd, class F>
  CUTLASS_DEVICE static void pick(int i, F f) {
    if constexpr (kEnd - kFirst == 1) {
      f(Int<kFirst>{});
    } else {
      constexpr int kMiddle = (kFirst + kEnd) / 2;
      if (i < kMiddle) {
        pick<kFirst, kMiddle>(i, f);
      } else {
        pick<kMiddle, kEnd>(i, f);
      }
    }
  }

  // Of columns [8 group, 8 group + kColumns) and of row block m. Sync has up's apart, in `up`.
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static void take(Accumulators const& accum, Accumulators const& up, int group,
                                  int m, Sums& taken) {
    using Width = typename Traits::template Width<kWidth>;
    constexpr int kPlaces = kWidth / 8 - kGroups + 1;
    constexpr int kRowBlocks = Traits::kWarpgroupM / Traits::kMmaM;
    pick<0, kPlaces * kRowBlocks>(m * kPlaces + group, [&](auto number) {
      constexpr int kBlock = number / kPlaces, kAt = number % kPlaces * kGroup;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if constexpr (Traits::kFamily == Family::Interleave) {
          int const at = 2 * kAt + i / kGroup * 2 * kGroup + i % kGroup;
          taken.first[i] = accum(at, kBlock, 0);
          taken.second[i] = accum(at + kGroup, kBlock, 0);
        } else {
          taken.first[i] = accum(kAt + i, kBlock, 0);
          if constexpr (Traits::kTwoPasses) {
            taken.second[i] = up(kAt + i, kBlock, 0);
          } else if constexpr (Traits::kWeights == 1) {
            taken.second[i] = 0.0f;
          } else if constexpr (Width::kMmaN == Width::kColumns) {
            taken.second[i] = accum(kWidth / 2 + kAt + i, kBlock, 0);
          } else {
            taken.second[i] = accum(kAt + i, kBlock, 1);
          }
        }
      }
    });
    if constexpr (kTurns) {  // both have gate's and up's by turns: gate's to first, up's to second
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; i += kGroup) {
        float const up_low = taken.first[i + 1], up_high = taken.first[i + 3];
        float const gate_low = taken.second[i], gate_high = taken.second[i + 2];
        taken.second[i] = up_low;
        taken.second[i + 2] = up_high;
        taken.first[i + 1] = gate_low;
        taken.first[i + 3] = gate_high;
      }
    }
  }

  // The column of a sum in its group.
  CUTLASS_DEVICE static int column_of(int i) {
    int const pair = int(threadIdx.x) % 4;
    return i / kGroup * 8 + (kTurns ? pair + i % 2 * 4 : 2 * pair + i % 2);
  }

  // Fetches the biases of the tile whose first column is n, of `columns`. The warpgroup's threads
  // meet at a barrier then, and each has met one since it last read those before.
  CUTLASS_DEVICE static void fetch(Asked const& asked, int n, int columns, Biases& biases) {
    for (int i = int(threadIdx.x) % 128; i < Traits::kBlockN; i += 128) {
      biases[0][i] = bias_of(asked.bias_first, n + i, columns);
      if constexpr (Traits::kGates == 2) {
        biases[1][i] = bias_of(asked.bias_second, n + i, columns);
      }
    }
  }

  // Adds those of columns [at, at + kColumns) of the tile.
  CUTLASS_DEVICE static void add(Element const* biases, int at, float* sums) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; i += kGroup) {
      float const one = float(biases[at + column_of(i)]);
      float const two = float(biases[at + column_of(i + 1)]);
      sums[i] += one;
      sums[i + 1] += two;
      sums[i + 2] += one;
      sums[i + 3] += two;
    }
  }

  using Part = Shape<Int<Traits::kMmaM>, Int<kColumns>>;

  // A thread's results to their places in a part of a box.
  template <class SharedPart>
  CUTLASS_DEVICE static void put(float const* results, SharedPart const& to) {
    int const thread = int(threadIdx.x) % 128;
    if constexpr (kTurns) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        int const row = thread / 32 * 16 + thread % 32 / 4 + i % kGroup / 2 * 8;
        to(row, column_of(i)) = Element(results[i]);
      }
    } else {
      typename Traits::template MmaFor<Traits::kMmaM, kColumns, Major::K> mma;
      auto copy = cute::make_tiled_copy_C(cute::Copy_Atom<cute::SM90_U32x4_STSM_N, Element>{}, mma);
      auto thread_copy = copy.get_slice(thread);
      auto out = cute::make_tensor<Element>(cute::partition_shape_C(mma, Part{}));
      static_assert(cute::size(decltype(out){}) == kCount, "in WGMMA's order");
      cutlass::NumericArrayConverter<Element, float, kCount> round;
      auto const rounded = round(reinterpret_cast<cutlass::Array<float, kCount> const&>(*results));
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) out(i) = rounded[i];
      cute::copy(copy, thread_copy.retile_S(out), thread_copy.partition_D(to));
    }
  }

  // Stores a tile as Epilogue::store does, of which `row` and `column` are the first.
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static void store(Accumulators const& accum, Accumulators const& up,
                                   Asked const& asked, Biases const& biases, Element* smem_out,
                                   int consumer, int& stored, int row, int column,
                                   cute::TmaDescriptor const& tma_out) {
    constexpr int kBox = Traits::kOutBoxN;
    constexpr int kBoxes = (kWidth + kBox - 1) / kBox;
    constexpr int kRowBlocks = Traits::kWarpgroupM / Traits::kMmaM;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int number = 0; number < kRowBlocks * kBoxes; ++number, ++stored) {
      int const m = number / kBoxes;
      int const first = min(number % kBoxes * kBox, kWidth - kBox);
      Element* buffer = smem_out + stored % Traits::kOutStages * (Traits::kMmaM * kBox);
      auto s_out = cute::as_position_independent_swizzle_tensor(
          cute::make_tensor(cute::make_smem_ptr(buffer), typename Traits::SmemLayoutOut{}));
      CUTLASS_PRAGMA_NO_UNROLL
      for (int part = 0; part < kBox; part += kColumns) {
        Sums taken;
        take<kWidth>(accum, up, (first + part) / 8, m, taken);
        if (asked.bias_first != nullptr) add(biases[0], first + part, taken.first);
        if constexpr (Traits::kGates == 2) {
          if (asked.bias_second != nullptr) add(biases[1], first + part, taken.second);
          activate<kCount>(asked.activation, asked.coefficients, taken.first, taken.second);
        }
        put(taken.first, cute::local_tile(s_out, Part{}, cute::make_coord(0, part / kColumns)));
      }
      Epilogue<Traits>::store_box(buffer, consumer, column + first, row + m * Traits::kMmaM,
                                  tma_out);
    }
  }
};

}  // namespace cuswiglu
