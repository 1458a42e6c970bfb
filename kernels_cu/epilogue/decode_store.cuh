// The decode kernel behind its K loop: sums meet, inside the CTA and across the cluster, and the
// result is stored.
#pragma once

#include "mainloop/decode.cuh"
#include "common/ptx.cuh"

namespace cuswiglu::decode {

template <class Traits>
struct DecodeStore {
  using Element = typename Traits::Element;
  using Cta = Cta<Traits>;
  using Accumulators = typename DecodeMainloop<Traits>::Accumulators;
  // Sums of one of a thread's rows, a number for each of its tokens.
  using Row = float[Traits::kRowTokens];

  // A tile's place in the result, and how much of it there is.
  struct Target {
    Element* out;
    long long stride;
    int rows;
    int tokens;
  };

  // Token i of a thread's first (half = 0) or second row of a block: its accumulator. The tokens
  // are two neighbours of every eight, from first_token() on.
  CUTLASS_DEVICE static int accumulator(int i, int half) { return i / 2 * 4 + half * 2 + i % 2; }
  CUTLASS_DEVICE static int first_token() { return int(threadIdx.x) % 4 * 2; }
  CUTLASS_DEVICE static int token(int i) { return i / 2 * 8 + first_token() + i % 2; }
  CUTLASS_DEVICE static int row(int half) {
    return int(threadIdx.x) % 128 / 32 * 16 + half * 8 + int(threadIdx.x) % 32 / 4;
  }

  // Each warpgroup has the sums of one box, and gives the other those of one of a thread's two
  // rows: `first` and `second` become the sums of both boxes, of row(warpgroup).
  CUTLASS_DEVICE static void exchange(Cta const& cta, int warpgroup, Accumulators const& accum,
                                      Row& first, Row& second) {
    int const thread = int(threadIdx.x) % 128;
    float* given = cta.exchanged() + warpgroup * Traits::kExchange + thread;
    float const* got = cta.exchanged() + (1 - warpgroup) * Traits::kExchange + thread;
    bool const upper = warpgroup != 0;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Traits::kRowTokens; ++i) {
      given[i * 128] = upper ? accum(accumulator(i, 0)) : accum(accumulator(i, 1));
    }
    sync_consumers();
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Traits::kRowTokens; ++i) {
      float const kept = upper ? accum(accumulator(i, 1)) : accum(accumulator(i, 0));
      float const other = got[i * 128];
      first[i] = upper ? other : kept;
      second[i] = upper ? kept : other;
    }
    sync_consumers();  // before the place is used again
  }

  // Stores a thread's rows: get(half, i) is the result of row row_of(half) and token i.
  template <int kHalves, class RowOf, class Get>
  CUTLASS_DEVICE static void store(Target const& to, RowOf row_of, Get get) {
    CUTLASS_PRAGMA_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      store_row(to, row_of(half), [&](int i) { return get(half, i); });
    }
  }

  // get(i) is the result of token i.
  template <class Get>
  CUTLASS_DEVICE static void store_row(Target const& to, int row, Get get) {
    if (row >= to.rows) return;
    int left = to.tokens - first_token();
    Element* out = to.out + first_token() * to.stride + row;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Traits::kRowTokens; i += 2) {
      Element const one(get(i)), other(get(i + 1));
      if (left > 0) out[0] = one;
      if (left > 1) out[to.stride] = other;
      left -= 8;
      out += 8 * to.stride;
    }
  }

  // Lays out a row's sums of tokens [chunk, chunk + kChunk) for its owner.
  template <class Get>
  CUTLASS_DEVICE static void lay_out(Cta const& cta, Target const& to, int row, int chunk,
                                     Get get) {
    if (row >= to.rows) return;
    int const owner = row / cta.share;
    float* sums = cta.sums_sent() + owner * cta.sum_floats() + row - owner * cta.share;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Traits::kRowTokens; ++i) {
      if (i / 2 * 8 / Traits::kChunk * Traits::kChunk != chunk) continue;
      if (token(i) < to.tokens) sums[(token(i) - chunk) * cta.share] = get(i);
    }
  }

  // Sends what is laid out to the owners, 16 bytes at a time.
  CUTLASS_DEVICE static void send(Cta const& cta, int tokens) {
    int const each = tokens * cta.share / 4;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = int(threadIdx.x); i < each * cta.ranks; i += Traits::kConsumerThreads) {
      int const owner = i / each, at = (i - owner * each) * 4;
      float4 const four =
          *reinterpret_cast<float4 const*>(cta.sums_sent() + owner * cta.sum_floats() + at);
      store_shared_remote(four.x, four.y, four.z, four.w,
                          in_cta(owner, cta.sums_received() + cta.rank * cta.sum_floats() + at),
                          in_cta(owner, &cta.barriers.sums_full));
    }
  }

  // Adds up, in the order of ranks, what all sent of the rows that this CTA owns, and stores it.
  CUTLASS_DEVICE static void add_up(Cta const& cta, Target const& to, int chunk, int tokens) {
    int const first_row = cta.rank * cta.share;
    int const owned = min(cta.share, to.rows - first_row);
    if (owned <= 0) return;
    float const* received = cta.sums_received();
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = int(threadIdx.x); i < owned * tokens; i += Traits::kConsumerThreads) {
      int const token = i / owned, row = i - token * owned;
      float const* sums = received + token * cta.share + row;
      float sum = sums[0];
      CUTLASS_PRAGMA_NO_UNROLL
      for (int rank = 1; rank < cta.ranks; ++rank) sum += sums[rank * cta.sum_floats()];
      to.out[(chunk + token) * to.stride + first_row + row] = Element(sum);
    }
  }

  // The cluster's sums meet at their owners, who store them: get(half, i) is this CTA's sum of the
  // thread's row row_of(half) and token i. `exchanges` counts the chunks so far; `last`: no tile
  // follows.
  template <int kHalves, class RowOf, class Get>
  CUTLASS_DEVICE static void reduce(Cta const& cta, Target const& to, uint32_t& exchanges,
                                    bool last, RowOf row_of, Get get) {
    CUTLASS_PRAGMA_UNROLL
    for (int chunk = 0; chunk < Traits::kTokens; chunk += Traits::kChunk) {
      if (chunk >= to.tokens) break;
      int const tokens = min(Traits::kChunk, to.tokens - chunk);
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        lay_out(cta, to, row_of(half), chunk, [&](int i) { return get(half, i); });
      }
      if (threadIdx.x == 0) {
        cta.barriers.sums_full.arrive_and_expect_tx(cta.ranks * tokens * cta.share * 4);
      }
      sync_consumers();
      if (exchanges > 0) cta.barriers.sums_free.wait((exchanges - 1) & 1);
      send(cta, tokens);
      cta.barriers.sums_full.wait(exchanges & 1);
      add_up(cta, to, chunk, tokens);
      ++exchanges;
      if (!last || chunk + Traits::kChunk < to.tokens) {
        sync_consumers();
        if (int(threadIdx.x) < cta.ranks) cta.barriers.sums_free.arrive(threadIdx.x, true);
      }
    }
  }
};

}  // namespace cuswiglu::decode
