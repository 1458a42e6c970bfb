// Named barriers of kernels with two consumer warpgroups. They wake faster than barriers in shared
// memory: the turn changes once a tile, and the tensor cores would idle meanwhile.
#pragma once

#include <cutlass/arch/barrier.h>

namespace cuswiglu {

constexpr int kConsumerWarpgroups = 2;

CUTLASS_DEVICE void sync_warpgroup(int consumer) {
  cutlass::arch::NamedBarrier::sync(128, uint32_t(consumer));
}

// Pingpong: a consumer's turn to issue the products of a tile, which the other one gives it.
CUTLASS_DEVICE void wait_for_turn(int consumer) {
  cutlass::arch::NamedBarrier::sync(256, uint32_t(kConsumerWarpgroups + consumer));
}
CUTLASS_DEVICE void give_turn(int consumer) {
  cutlass::arch::NamedBarrier::arrive(256, uint32_t(kConsumerWarpgroups + consumer));
}

}  // namespace cuswiglu
