// What sums go through before the one rounding, in FP32: y = G(gate) * U(up).
#pragma once

#include <cuda/std/limits>
#include <cutlass/cutlass.h>
#include <cutlass/functional.h>

namespace cuswiglu {

// As the caller numbers them.
enum class Activation : int { SiLU = 0, Gelu = 1, GeluTanh = 2, Relu = 3, Clamped = 4 };

// What a launch asks for. alpha and limit are Clamped's; biases may be null.
template <class Element>
struct Gating {
  Activation activation;
  float alpha;
  float limit;
  Element const* bias_first;   // of gate, or of the only weight
  Element const* bias_second;  // of up

  CUTLASS_DEVICE bool biased() const { return bias_first != nullptr || bias_second != nullptr; }
  // Nothing but SiLU: what kernels have code of its own for.
  CUTLASS_DEVICE bool only_silu() const {
    return activation == Activation::SiLU && !biased();
  }
};

template <class Element>
CUTLASS_DEVICE float bias_of(Element const* bias, int n, int columns) {
  return bias != nullptr && n < columns ? float(bias[n]) : 0.0f;
}

constexpr float kInfinity = cuda::std::numeric_limits<float>::infinity();
constexpr float kLog2e = 1.4426950408889634f;

// x * sigmoid(x), with two special-function instructions an element. tanh.approx would need one,
// but loses all relative accuracy for x below about -3.
struct SiLU {
  CUTLASS_DEVICE float operator()(float x) const {
    return x * cutlass::reciprocal_approximate_ftz<float>{}(1.0f + __expf(-x));
  }
};

// G of all kinds, in one piece of code: the kernels have it once for every width of tiles.
//   Gelu      x Phi(x), Phi the normal distribution's. For x < 0 that is exp(-x^2 / 2) times a
//             polynomial in t = 1 / (1 + 0.38 |x|), here fitted to within 5e-5 of it from -14 to 0,
//             so that small results are exact too
//   others    x sigmoid(linear x + cubic x^3), for x between `least` and `most`
//   GeluTanh  x / 2 (1 + tanh z) = x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
//   Relu      max(x, 0), times the sigmoid of infinity
struct Gate {
  bool gelu;
  float linear = -kLog2e;  // these two times -log2 e
  float cubic = 0.0f;
  float constant = 0.0f;
  float least = -kInfinity;
  float most = kInfinity;

  CUTLASS_DEVICE Gate(Activation activation, float alpha, float limit)
      : gelu(activation == Activation::Gelu) {
    if (activation == Activation::GeluTanh) {
      linear = -kLog2e * 1.5957691216057308f;
      cubic = linear * 0.044715f;
    } else if (activation == Activation::Relu) {
      constant = -kInfinity;
      least = 0.0f;
    } else if (activation == Activation::Clamped) {
      linear = -kLog2e * alpha;
      most = limit;
    }
  }

  CUTLASS_DEVICE float operator()(float x) const {
    x = cutlass::minimum<float, true>{}(cutlass::maximum<float, true>{}(x, least), most);
    float const square = fminf(x * x, 1e30f);  // finite, so that a cubic of 0 stays 0
    float const power = exp2f(gelu ? -0.5f * kLog2e * square
                                   : fmaf(x, fmaf(cubic, square, linear), constant));
    float const t = cutlass::reciprocal_approximate_ftz<float>{}(
        1.0f + (gelu ? 0.38f * fabsf(x) : power));
    if (!gelu) return x * t;
    float tail = fmaf(t, -0.0899340659f, 0.1888882071f);
    tail = fmaf(t, tail, 0.0919719487f);
    tail = fmaf(t, tail, 0.1578312516f);
    tail = fmaf(t, tail, 0.1512250602f) * t * power;
    return x * (x < 0.0f ? tail : 1.0f - tail);
  }
};

// U: clamped, plus 1, if Clamped.
struct Up {
  float limit = kInfinity;
  float constant = 0.0f;

  CUTLASS_DEVICE Up(Activation activation, float limit_) {
    if (activation == Activation::Clamped) {
      limit = limit_;
      constant = 1.0f;
    }
  }

  CUTLASS_DEVICE float operator()(float x) const {
    x = cutlass::minimum<float, true>{}(cutlass::maximum<float, true>{}(x, -limit), limit);
    return x + constant;
  }
};

}  // namespace cuswiglu
