// PTX that CUTLASS has no atom for; there is none elsewhere.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

namespace cuswiglu {

// Like cute::store_shared_remote, which moves 4 bytes: writes 16 bytes to an address in the shared
// memory of another CTA of the cluster, and counts them at a barrier there.
CUTLASS_DEVICE void store_shared_remote(float x, float y, float z, float w, uint32_t to,
                                        uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];"
      :
      : "r"(to), "f"(x), "f"(y), "f"(z), "f"(w), "r"(barrier)
      : "memory");
}

// The address of the same place in another CTA's shared memory.
CUTLASS_DEVICE uint32_t in_cta(int rank, void const* place) {
  return cute::set_block_rank(cute::cast_smem_ptr_to_uint(place), rank);
}

}  // namespace cuswiglu
