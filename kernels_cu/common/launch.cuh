// What every kernel has of its launch: the descriptors of its inputs, its barriers, and how it
// overlaps the work ahead of it on the stream.
#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cutlass/arch/grid_dependency_control.h>

namespace cuswiglu {

// The TMA descriptors of the inputs, which stay in the kernel's arguments.
struct InputMaps {
  cute::TmaDescriptor const& x;
  cute::TmaDescriptor const& first;   // gate, or the only weight
  cute::TmaDescriptor const& second;  // up, or the only weight again
};

// `two`: whether the kernel has a second weight.
CUTLASS_DEVICE void prefetch_descriptors(InputMaps const& maps, bool two) {
  cute::prefetch_tma_descriptor(&maps.x);
  cute::prefetch_tma_descriptor(&maps.first);
  if (two) cute::prefetch_tma_descriptor(&maps.second);
}

// All threads, once the first has initialised and fenced the barriers: the CTA sees them, or the
// cluster.
CUTLASS_DEVICE void publish_barriers(bool clustered) {
  if (clustered) {
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
  } else {
    __syncthreads();
  }
}

// Programmatic dependent launch: returns once all work ahead is done and its writes are visible,
// and lets the next kernel start. Only then: the next kernel may take for granted what lay before
// this one.
CUTLASS_DEVICE void wait_for_work_ahead() {
  cutlass::arch::wait_on_dependent_grids();
  cutlass::arch::launch_dependent_grids();
}

}  // namespace cuswiglu
