// A place in a ring of stages whose number is known at run time.
#pragma once

#include <cutlass/cutlass.h>

namespace cuswiglu {

struct Stage {
  int index = 0;
  uint32_t phase = 0;
  CUTLASS_DEVICE void next(int stages) {
    if (++index == stages) {
      index = 0;
      phase ^= 1;
    }
  }
  // Passes over `steps`.
  CUTLASS_DEVICE void skip(int steps, int stages) {
    index += steps;
    int const rounds = index / stages;
    index -= rounds * stages;
    phase ^= uint32_t(rounds) & 1;
  }
};

}  // namespace cuswiglu
