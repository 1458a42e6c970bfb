// PTX that CUTLASS has no atom for; there is none elsewhere.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

namespace cuswiglu {

// Like cute::store_shared_remote, which moves 4 bytes: writes 16 bytes to the place that `at` has
// in the shared memory of another CTA of the cluster, and counts them at its `barrier`.
CUTLASS_DEVICE void store_shared_remote(float4 value, float* at, void* barrier, int rank) {
  uint32_t const remote = cute::set_block_rank(cute::cast_smem_ptr_to_uint(at), rank);
  uint32_t const remote_barrier = cute::set_block_rank(cute::cast_smem_ptr_to_uint(barrier), rank);
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];"
      :
      : "r"(remote), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(remote_barrier)
      : "memory");
}

}  // namespace cuswiglu
