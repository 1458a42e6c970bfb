// What sums go through before the one rounding, in FP32: y = G(gate) * U(up).
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/functional.h>

namespace cuswiglu {

// How G is computed, as the caller numbers it: GELU's way, and all others from the coefficients.
enum class Activation : int { SiLU = 0, Gelu = 1, Logistic = 2 };

// Of G and U, from the caller.
//   Logistic  x / (1 + 2^(linear x + cubic x^3 + constant)), x between `least` and `most`
//   U         x between -up_limit and up_limit, plus up_constant
// They stay where the kernel's arguments are: no registers are free for them.
struct Coefficients {
  float linear;
  float cubic;
  float constant;
  float least;
  float most;
  float up_limit;
  float up_constant;
};

// What a launch asks for, of entries for anything but SiLU alone. Biases may be null.
template <class Element>
struct Gating {
  Activation activation;
  Coefficients coefficients;
  Element const* bias_first;   // of gate, or of the only weight
  Element const* bias_second;  // of up

  CUTLASS_DEVICE bool biased() const { return bias_first != nullptr || bias_second != nullptr; }
};

template <class Element>
CUTLASS_DEVICE Element bias_of(Element const* bias, int n, int columns) {
  return bias != nullptr && n < columns ? bias[n] : Element(0.0f);
}

// x * sigmoid(x), with two special-function instructions an element. tanh.approx would need one,
// but loses all relative accuracy for x below about -3.
struct SiLU {
  CUTLASS_DEVICE float operator()(float x) const {
    return x * cutlass::reciprocal_approximate_ftz<float>{}(1.0f + __expf(-x));
  }
};

// NaN stays NaN.
CUTLASS_DEVICE float between(float least, float x, float most) {
  return cutlass::minimum<float, true>{}(cutlass::maximum<float, true>{}(x, least), most);
}

// G, as the caller's coefficients say.
CUTLASS_DEVICE float logistic(float x, Coefficients const& given) {
  x = between(given.least, x, given.most);
  float const square = fminf(x * x, 1e30f);  // finite, so that a cubic of 0 stays 0
  float const power = exp2f(fmaf(x, fmaf(given.cubic, square, given.linear), given.constant));
  return x * cutlass::reciprocal_approximate_ftz<float>{}(1.0f + power);
}

// G = x Phi(x), Phi the normal distribution's. For x < 0 that is exp(-x^2 / 2) times a polynomial in
// t = 1 / (1 + 0.38 |x|), here fitted to within 5e-5 of it from -14 to 0, so that small results are
// exact too.
CUTLASS_DEVICE float gelu(float x) {
  float const t = cutlass::reciprocal_approximate_ftz<float>{}(fmaf(0.38f, fabsf(x), 1.0f));
  float tail = fmaf(t, -0.0899340659f, 0.1888882071f);
  tail = fmaf(t, tail, 0.0919719487f);
  tail = fmaf(t, tail, 0.1578312516f);
  tail = fmaf(t, tail, 0.1512250602f) * t * exp2f(-0.72134752f * x * x);  // log2 e / 2
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// G(gate) * U(up) of kCount sums, in place of gate's.
template <int kCount>
CUTLASS_DEVICE void activate(Activation activation, Coefficients const& given, float* gate,
                             float const* up) {
  if (activation == Activation::Gelu) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) gate[i] = gelu(gate[i]);
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) gate[i] = logistic(gate[i], given);
  }
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    gate[i] *= between(-given.up_limit, up[i], given.up_limit) + given.up_constant;
  }
}

}  // namespace cuswiglu
