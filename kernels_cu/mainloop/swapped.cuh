// The swapped tile kernel's K loop: TMA loads of the weights and X into a ring of stages, and
// WGMMAs whose width is chosen for each tile.
#pragma once

#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "common/launch.cuh"
#include "impls/sm90_swapped_traits.cuh"

namespace cuswiglu::swapped {

template <class Traits>
struct SwappedMainloop {
  using Element = typename Traits::Element;
  using Cta = Cta<Traits>;
  static constexpr uint64_t kHint = uint64_t(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  // A thread's sums of a tile: of gate and up, or of the first and the second 64 rows.
  struct Sums {
    float first[Traits::kMost / 2];
    float second[Traits::kMost / 2];
  };

  // ---- Producer, one thread ----

  // box(descriptor, which of the two, coordinates).
  template <class Box>
  CUTLASS_DEVICE static void weight_boxes(Cta const& cta, int n, int k, InputMaps const& maps,
                                          Box box) {
    int const second = Traits::kGated ? n : n + cta.rows;
    if constexpr (Traits::kMajor == Major::K) {
      box(maps.first, 0, k, n);
      box(maps.second, 1, k, second);
    } else {
      box(maps.first, 0, n, k);
      box(maps.second, 1, second, k);
    }
  }

  CUTLASS_DEVICE static void load_weights(Cta const& cta, int stage, int n, int k,
                                          InputMaps const& maps) {
    auto& full = cta.fixed.full[stage];
    full.arrive_and_expect_tx(cta.loaded_bytes);
    weight_boxes(cta, n, k, maps,
                 [&](cute::TmaDescriptor const& map, int which, int inner, int outer) {
      cute::SM90_TMA_LOAD_2D::copy(&map, reinterpret_cast<uint64_t*>(&full), kHint,
                                   cta.weights(stage, which), inner, outer);
    });
  }

  // X for all tokens of the widest tiles: this CTA's share, to all of the cluster; or all of it.
  CUTLASS_DEVICE static void load_x(Cta const& cta, int stage, int token, int k, bool shared,
                                    InputMaps const& maps) {
    auto* full = reinterpret_cast<uint64_t*>(&cta.fixed.full[stage]);
    if constexpr (Traits::kSharers > 1) {
      if (shared) {
        constexpr uint16_t kEveryone = (1u << Traits::kSharers) - 1;
        int const first = cta.rank * cta.x_rows;
        cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&maps.x, full, kEveryone, kHint,
                                               cta.x(stage) + first * Traits::kBlockK, k,
                                               token + first);
        return;
      }
    }
    CUTLASS_PRAGMA_NO_UNROLL
    for (int peer = 0; peer < Traits::kSharers; ++peer) {
      int const first = peer * cta.x_rows;
      cute::SM90_TMA_LOAD_2D::copy(&maps.x, full, kHint, cta.x(stage) + first * Traits::kBlockK, k,
                                   token + first);
    }
  }

  // The part of K that a CTA multiplies of a tile, in steps.
  struct Part {
    int first;
    int count;
  };
  CUTLASS_DEVICE static Part part(Cta const& cta, SwappedTile tile, int k_tiles) {
    if (Traits::kClusterN == 1 || !tile.split) return {0, k_tiles};
    int const first = cta.rank * k_tiles / Traits::kClusterN;
    return {first, (cta.rank + 1) * k_tiles / Traits::kClusterN - first};
  }

  // One tile's part of K. Of the first `armed` stages the weights are under way.
  CUTLASS_DEVICE static void load(Cta const& cta, Stage& stage, SwappedTile tile, int k_tiles,
                                  int armed, InputMaps const& maps) {
    Part const steps = part(cta, tile, k_tiles);
    int k = steps.first * Traits::kBlockK;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int left = steps.count; left > 0; --left, k += Traits::kBlockK) {
      if (armed > 0) {
        --armed;
      } else {
        cta.fixed.empty[stage.index].wait(stage.phase ^ 1);
        load_weights(cta, stage.index, tile.block * cta.columns(), k, maps);
      }
      load_x(cta, stage.index, tile.token, k, !tile.split, maps);
      stage.next(cta.stages);
    }
  }

  // Before the work ahead is done: the weights of the first stages, which no kernel ahead writes.
  // Returns how many stages are armed.
  CUTLASS_DEVICE static int load_weights_ahead(Cta const& cta, SwappedTile tile, int k_tiles,
                                               InputMaps const& maps) {
    Part const steps = part(cta, tile, k_tiles);
    int const ahead = min(steps.count, cta.stages);
    CUTLASS_PRAGMA_NO_UNROLL
    for (int stage = 0; stage < ahead; ++stage) {
      load_weights(cta, stage, tile.block * cta.columns(), (steps.first + stage) * Traits::kBlockK,
                   maps);
    }
    return ahead;
  }

  // Before it exits: every stage has come back, so no peer will arrive here any more.
  CUTLASS_DEVICE static void drain(Cta const& cta, Stage& stage) {
    if constexpr (Traits::kSharers > 1) {
      CUTLASS_PRAGMA_NO_UNROLL
      for (int i = 0; i < cta.stages; ++i) {
        cta.fixed.empty[stage.index].wait(stage.phase ^ 1);
        stage.next(cta.stages);
      }
    }
  }

  // ---- Consumers ----

  // Hands a stage back to the producers that fill it: as many arrivals a warp as CTAs share X, one
  // for each, or all for its own. `to`: the CTA that the lane's is for.
  CUTLASS_DEVICE static void release(Cta const& cta, int stage, int to) {
    uint32_t const lane = cutlass::canonical_lane_idx();
    if constexpr (Traits::kSharers == 1) {
      if (lane == 0) cta.fixed.empty[stage].arrive();
    } else {
      cta.fixed.empty[stage].arrive(uint32_t(to), lane < Traits::kSharers);
    }
  }

  // Adds 64 rows of weights times kTokens rows of X: descriptors a and b.
  template <int kTokens, size_t... kIndex>
  CUTLASS_DEVICE static void multiply_add(uint64_t a, uint64_t b, float* sums,
                                          cute::GMMA::ScaleOut scale,
                                          cute::index_sequence<kIndex...>) {
    Traits::template Mma<kTokens>::fma(a, b, sums[kIndex]..., scale);
  }

  // WGMMA reads and writes the sums while the compiler does not look.
  template <int kTokens>
  CUTLASS_DEVICE static void fence(Sums& sums) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kTokens / 2; ++i) {
      cute::warpgroup_fence_operand(sums.first[i]);
      cute::warpgroup_fence_operand(sums.second[i]);
    }
  }

  // All products of a tile's part of K, for kTokens. issued() is called when all are under way.
  // shared: whether the cluster's CTAs share the stages of X.
  template <int kTokens, class Issued>
  CUTLASS_DEVICE static void multiply(Cta const& cta, Stage& stage, int k_tiles, bool shared,
                                      Sums& sums, Issued issued) {
    using Index = cute::make_index_sequence<kTokens / 2>;
    auto const thread_mma = typename Traits::TiledMma{}.get_slice(0);  // the same for every thread
    auto scale = cute::GMMA::ScaleOut::Zero;
    int const to = shared ? int(cutlass::canonical_lane_idx()) : cta.rank;
    int previous = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
      cta.fixed.full[stage.index].wait(stage.phase);
      auto weights = [&](int which) {
        auto s_w = cute::make_tensor(cute::make_smem_ptr(cta.weights(stage.index, which)),
                                     typename Traits::SmemLayoutW{});
        return thread_mma.make_fragment_A(thread_mma.partition_A(s_w));  // (MMA, 1, K)
      };
      auto s_x = cute::make_tensor(cute::make_smem_ptr(cta.x(stage.index)),
                                   typename Traits::SmemLayoutX{});
      auto const x = thread_mma.make_fragment_B(thread_mma.partition_B(s_x));  // (MMA, 1, K)
      auto const first = weights(0), second = weights(1);
      fence<kTokens>(sums);
      cute::warpgroup_arrive();
      CUTLASS_PRAGMA_UNROLL
      for (int k = 0; k < cute::size<2>(x); ++k) {
        multiply_add<kTokens>(first(0, 0, k), x(0, 0, k), sums.first, scale, Index{});
        multiply_add<kTokens>(second(0, 0, k), x(0, 0, k), sums.second, scale, Index{});
        scale = cute::GMMA::ScaleOut::One;
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      fence<kTokens>(sums);
      if (k_tile > 0) release(cta, previous, to);
      previous = stage.index;
      stage.next(cta.stages);
    }
    issued();
    cute::warpgroup_wait<0>();
    fence<kTokens>(sums);
    release(cta, previous, to);
  }

  // f(Constant<kTokens>), for the tokens of a tile.
  template <int kTokens = Traits::kMost, class F>
  CUTLASS_DEVICE static void for_tokens(int tokens, F f) {
    if constexpr (kTokens > Traits::kFewest) {
      if (tokens < kTokens) {
        for_tokens<kTokens - Traits::kStep>(tokens, f);
        return;
      }
    }
    f(Constant<kTokens>{});
  }
};

}  // namespace cuswiglu::swapped
