// Families that are not in the package: Sync with the activation elsewhere and without it, slower
// or wrong, to be timed beside it (`python -m build_scripts --ablations`).
#pragma once

#include "families.cuh"

namespace cuswiglu {

// The activation behind up's products.
struct SyncLate : Sync {
  static constexpr bool kActivateBetween = false, kActivateBehind = true;
};

// No activation: Y = (X W_gate) * (X W_up).
struct SyncBare : Sync {
  static constexpr bool kActivateBetween = false, kActivateBehind = false;
};

}  // namespace cuswiglu
