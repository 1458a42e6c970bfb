// Activations, applied in FP32 to unrounded accumulators.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/functional.h>

namespace cuswiglu {

// x * sigmoid(x) as x * rcp(1 + 2^(-x log2 e)): two special-function instructions an element.
// tanh.approx would need one, but loses all relative accuracy for x below about -3.
struct SiLU {
  CUTLASS_DEVICE float operator()(float x) const {
    return x * cutlass::reciprocal_approximate_ftz<float>{}(1.0f + __expf(-x));
  }
};

}  // namespace cuswiglu
