// What every kernel has of its launch: the descriptors of its inputs, and how it overlaps the work
// ahead of it on the stream.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cutlass/arch/grid_dependency_control.h>

namespace cuswiglu {

// The TMA descriptors of the inputs, which stay in the kernel's arguments.
struct InputMaps {
  cute::TmaDescriptor const& x;
  cute::TmaDescriptor const& first;   // gate, or the only weight
  cute::TmaDescriptor const& second;  // up, or the only weight again
};

// Programmatic dependent launch: returns once all work ahead is done and its writes are visible,
// and lets the next kernel start. Only then: the next kernel may take for granted what lay before
// this one.
CUTLASS_DEVICE void wait_for_work_ahead() {
  cutlass::arch::wait_on_dependent_grids();
  cutlass::arch::launch_dependent_grids();
}

}  // namespace cuswiglu
