// The swapped tile kernel behind its K loop: one rounding, a transposing stmatrix to shared memory,
// TMA store.
#pragma once

#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "common/ptx.cuh"
#include "epilogue/rounded_pair.cuh"
#include "impls/sm90_swapped_traits.cuh"

namespace cuswiglu::swapped {

template <class Traits>
struct SwappedStore {
  using Element = typename Traits::Element;

  // First of the two rows of 64 that a thread has sums of; the other is 8 on.
  CUTLASS_DEVICE static int row() {
    return int(threadIdx.x) % 128 / 32 * 16 + int(threadIdx.x) % 32 / 4;
  }

  // Tokens of a tile, from the first to before the last.
  struct Range {
    int first;
    int last;
  };

  // A tile that was cut along K: each CTA gets the others' sums of its share of the tokens, and
  // adds them to its own, peer by peer. Returns its share. The stages must be free.
  template <class Sums>
  CUTLASS_DEVICE static Range add_up(Cta<Traits> const& cta, int tokens, Sums& sums) {
    constexpr int kPeers = Traits::kClusterN - 1;
    // Of every 8 tokens a thread has four sums of each weight;
    // [peer][token / 8 of the share][weight][thread].
    constexpr int kEight = 2 * 128 * int(sizeof(float4));
    int const thread = int(threadIdx.x) % 128, lane = thread % 32;
    int const slot_bytes = cta.share / 8 * kEight;
    int const begin = cta.rank * cta.share;
    Range const mine{min(begin, tokens), min(begin + cta.share, tokens)};
    if (thread == 0) {
      cta.fixed.sums_full.arrive_and_expect_tx(kPeers * (mine.last - mine.first) / 8 * kEight);
    }
    int const to = lane + (lane >= cta.rank ? 1 : 0);  // the lane's peer
    cta.fixed.sums_free.arrive(uint32_t(to), lane < kPeers);
    cta.fixed.sums_free.wait(0);
    auto send = [&](float const* sum, uint32_t to, uint32_t full) {
      store_shared_remote(sum[0], sum[1], sum[2], sum[3], to, full);
    };
    int owner = 0, within = 0;  // whose share a token is in, and how many eights of it came before
    CUTLASS_PRAGMA_UNROLL
    for (int token = 0; token < Traits::kMost; token += 8) {
      if (token >= tokens) break;
      if (owner != cta.rank) {
        int const slot = cta.rank - (cta.rank > owner ? 1 : 0);
        uint32_t const at =
            in_cta(owner, cta.sums() + thread) + slot * slot_bytes + within * kEight;
        uint32_t const full = in_cta(owner, &cta.fixed.sums_full);
        send(&sums.first[token / 2], at, full);
        send(&sums.second[token / 2], at + kEight / 2, full);
      }
      if (++within * 8 == cta.share) {
        ++owner;
        within = 0;
      }
    }
    cta.fixed.sums_full.wait(0);
    auto add = [](float* sum, float4 const& other) {
      sum[0] += other.x;
      sum[1] += other.y;
      sum[2] += other.z;
      sum[3] += other.w;
    };
    float4 const* from = cta.sums() + thread - begin / 8 * 256;
    CUTLASS_PRAGMA_UNROLL
    for (int token = 0; token < Traits::kMost; token += 8) {
      if (token >= mine.last) break;
      if (token < mine.first) continue;
      CUTLASS_PRAGMA_UNROLL
      for (int peer = 0; peer < kPeers; ++peer) {
        float4 const* other = from + peer * (slot_bytes / int(sizeof(float4))) + token / 8 * 256;
        add(&sums.first[token / 2], other[0]);
        add(&sums.second[token / 2], other[128]);
      }
    }
    return mine;
  }

  // Stores a range of a tile's tokens, of 64 columns: value(i) is the FP32 result at the place of
  // sum i, of which a thread has four of every 8 tokens. `stored` counts the buffers that this
  // warpgroup has stored so far.
  template <class Value>
  CUTLASS_DEVICE static void store(Value value, Cta<Traits> const& cta, int consumer, int& stored,
                                   int column, int token, Range range,
                                   cute::TmaDescriptor const& tma) {
    int const thread = int(threadIdx.x) % 128, lane = thread % 32;
    // Where a lane's row of 16 bytes goes: stmatrix writes four blocks of 8 tokens by 8 columns,
    // two along the columns, then two along the tokens; 128-byte swizzle.
    int const chunk = thread / 32 * 2 + lane / 8 % 2;
    int const place = (lane / 16 * 8 + lane % 8) * 128 + ((chunk ^ (lane % 8)) * 16);
    auto pair = [&](int i) { return rounded_pair<Element>(value(i), value(i + 1)); };
    // One lane of each warp issues the warp's boxes: uniform, so that no lane waits for another.
    static_assert(Traits::kOutTokens == 4 * Traits::kOutBoxTokens, "a box for each warp");
    int const box = cutlass::canonical_warp_idx_sync() % 4 * Traits::kOutBoxTokens;
    bool const issuing = cute::elect_one_sync();
    CUTLASS_PRAGMA_UNROLL
    for (int from = 0; from < Traits::kMost; from += Traits::kOutTokens) {
      if (from >= range.last) break;
      if (from + Traits::kOutTokens <= range.first) continue;
      Element* buffer = cta.fixed.out[consumer][stored % Traits::kOutStages];
      unsigned char* to = reinterpret_cast<unsigned char*>(buffer) + place;
      // Also of tokens behind the last: arithmetic of more of them at a time takes less time.
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < Traits::kOutTokens && from + t < Traits::kMost; t += 16) {
        int const i = (from + t) / 2;  // sums of 16 tokens
        cute::SM90_U16x8_STSM_T::copy(pair(i), pair(i + 2), pair(i + 4), pair(i + 6),
                                      *reinterpret_cast<cute::uint128_t*>(to + t * 128));
      }
      cute::tma_store_fence();
      // Behind this barrier the next buffer is free: only the last store may still read its own.
      if (issuing) cute::tma_store_wait<Traits::kOutStages - 2>();
      sync_warpgroup(consumer);
      if (issuing) {
        if (from + box >= range.first && from + box < range.last) {
          cute::SM90_TMA_STORE_2D::copy(&tma, buffer + box * Traits::kMmaRows, column,
                                        token + from + box);
        }
        cute::tma_store_arrive();
      }
      ++stored;
    }
  }

  // Shared memory must outlive the stores that read it.
  CUTLASS_DEVICE static void drain() { cute::tma_store_wait<0>(); }
};

}  // namespace cuswiglu::swapped
