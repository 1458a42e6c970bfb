// The epilogue of all that is not only SiLU: biases, other activations. Slow and small: one piece of
// code takes a thread's accumulators of eight columns after eight columns, where epilogue.cuh has
// code for each. In pingpong kernels the other warpgroup's products hide it.
#pragma once

#include "activation.cuh"
#include "epilogue.cuh"
#include "traits.cuh"

namespace cuswiglu {

template <class Traits>
struct GatedStore {
  using Element = typename Traits::Element;
  using Asked = Gating<Element>;
  // Of one weight a thread has, of 64 rows and 8 columns, two columns of two rows.
  static constexpr int kGroup = 4;
  static constexpr bool kTurns = Traits::kPacking == 1;  // gate and up, by single columns
  static_assert(Traits::kPacking == 0 || kTurns || Traits::kPacking == 8,
                "gate and up take turns by WGMMA's columns");

  // A thread's sums of 8 columns of the result (of 4 if kTurns: then `first` has gate's and up's by
  // turns, of as many columns more in `second`).
  struct Sums {
    float first[kGroup];   // gate's, or the only weight's
    float second[kGroup];  // up's
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

  // Of columns [8 group, 8 group + 8) and of row block m. Sync has up's apart, in `up`.
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static Sums sums(Accumulators const& accum, Accumulators const& up, int group,
                                  int m) {
    using Width = typename Traits::template Width<kWidth>;
    constexpr int kGroups = kWidth / 8;
    constexpr int kRowBlocks = Traits::kWarpgroupM / Traits::kMmaM;
    Sums taken;
    pick<0, kGroups * kRowBlocks>(m * kGroups + group, [&](auto number) {
      constexpr int kBlock = number / kGroups, kAt = number % kGroups * kGroup;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        if constexpr (Traits::kFamily == Family::Interleave) {
          taken.first[i] = accum(2 * kAt + i, kBlock, 0);
          taken.second[i] = accum(2 * kAt + kGroup + i, kBlock, 0);
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
    return taken;
  }

  // Stores a tile as Epilogue::store does, of which `row` and `column` are the first.
  template <int kWidth, class Accumulators>
  CUTLASS_DEVICE static void store(Accumulators const& accum, Accumulators const& up,
                                   Asked const& asked, int columns, Element* smem_out,
                                   int consumer, int& stored, int row, int column,
                                   cute::TmaDescriptor const& tma_out) {
    constexpr int kBox = Traits::kOutBoxN;
    constexpr int kBoxes = (kWidth + kBox - 1) / kBox;
    constexpr int kRowBlocks = Traits::kWarpgroupM / Traits::kMmaM;
    int const thread = int(threadIdx.x) % 128;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int number = 0; number < kRowBlocks * kBoxes; ++number, ++stored) {
      int const m = number / kBoxes;
      int const first = min(number % kBoxes * kBox, kWidth - kBox);
      Element* buffer = smem_out + stored % Traits::kOutStages * (Traits::kMmaM * kBox);
      CUTLASS_PRAGMA_NO_UNROLL
      for (int group = 0; group < kBox; group += 8) {
        Sums const taken = sums<kWidth>(accum, up, (first + group) / 8, m);
        put(taken, asked, column + first + group, columns, buffer, group, thread);
      }
      Epilogue<Traits>::store_box(buffer, consumer, column + first, row + m * Traits::kMmaM,
                                  tma_out);
    }
  }

  // To the buffer of a box, columns [group, group + 8), which are [n, n + 8) of `columns`.
  CUTLASS_DEVICE static void put(Sums const& taken, Asked const& asked, int n, int columns,
                                 Element* buffer, int group, int thread) {
    Gate const gate(asked.activation, asked.alpha, asked.limit);
    Up const through(asked.activation, asked.limit);
    auto s_out = cute::as_position_independent_swizzle_tensor(
        cute::make_tensor(cute::make_smem_ptr(buffer), typename Traits::SmemLayoutOut{}));
    int const row = thread / 32 * 16 + thread % 32 / 4;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < 2; ++j) {
      int const at = kTurns ? thread % 4 + 4 * j : thread % 4 * 2 + j;
      float const of_first = bias_of(asked.bias_first, n + at, columns);
      float const of_second = bias_of(asked.bias_second, n + at, columns);
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        float const* four = j == 0 ? taken.first : taken.second;
        float const first = kTurns ? four[2 * half] : taken.first[2 * half + j];
        float const second = kTurns ? four[2 * half + 1] : taken.second[2 * half + j];
        float const y = Traits::kFamily == Family::Plain
                            ? first + of_first
                            : gate(first + of_first) * through(second + of_second);
        s_out(row + 8 * half, group + at) = Element(y);
      }
    }
  }
};

}  // namespace cuswiglu
