// Activations of gate and up, in FP32 before the one rounding: y = G(gate) * U(up).
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/functional.h>

namespace cuswiglu {

// How G is computed, as the caller numbers it: GELU and ReLU in ways of their own, all others from
// the coefficients.
enum class Activation : int { SiLU = 0, Gelu = 1, Logistic = 2, Relu = 3, Sigmoid = 4 };

// Coefficients of G and U, from the caller.
//   Relu      x, at least `limit`: the identity, if that is -inf
//   Logistic  x / (1 + 2^(linear x + cubic x^3)), x at most `limit`
//   Sigmoid   the same with 1 for the first x
//   U         x between -limit and limit, plus up_constant; up itself for Gelu and Relu
// They stay where the kernel's arguments are: no registers are free for them.
struct Coefficients {
  float linear;
  float cubic;
  float limit;
  float up_constant;
};

// What a launch asks of the general epilogue; entries for SiLU alone ignore it.
template <class Element>
struct EpilogueArgs {
  Activation activation;
  Coefficients coefficients;
  Element const* bias_first;   // gate's, or the only weight's; may be null
  Element const* bias_second;  // up's; may be null

  // Arguments: the kernel's, as build_scripts/variants/arguments.py lists them.
  template <class Arguments>
  CUTLASS_DEVICE explicit EpilogueArgs(Arguments const& args)
      : activation(Activation(args.activation)),
        coefficients{args.linear, args.cubic, args.limit, args.up_constant},
        bias_first(args.b_first),
        bias_second(args.b_second) {}

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

struct SiLUGated {
  CUTLASS_DEVICE float operator()(float gate, float up) const {
    SiLU const silu;
    return silu(gate) * up;
  }
};

// NaN stays NaN.
CUTLASS_DEVICE float at_least(float least, float x) {
  return cutlass::maximum<float, true>{}(x, least);
}
CUTLASS_DEVICE float at_most(float most, float x) {
  return cutlass::minimum<float, true>{}(x, most);
}

// G, as the caller's coefficients say; `alone`: the sigmoid, not x times it.
CUTLASS_DEVICE float logistic(float x, Coefficients const& given, bool alone) {
  x = at_most(given.limit, x);
  float const square = fminf(x * x, 1e30f);  // finite, so that a cubic of 0 stays 0
  float const power = exp2f(x * fmaf(given.cubic, square, given.linear));
  return (alone ? 1.0f : x) * cutlass::reciprocal_approximate_ftz<float>{}(1.0f + power);
}

// G = x Phi(x), Phi the normal distribution's. For x < 0 that is exp(-x^2 / 2) times a polynomial
// in t = 0.6177 / (1 + 0.38 |x|), here fitted to within 5e-5 of it from -14 to 0, so that small
// results are exact too. t is scaled so that its last coefficient is -1: that saves a register.
CUTLASS_DEVICE float gelu(float x) {
  float const t =
      cutlass::reciprocal_approximate_ftz<float>{}(fmaf(0.6151751035f, fabsf(x), 1.6188818512f));
  float tail = 1.2973748113f - t;
  tail = fmaf(t, tail, 0.3902122072f);
  tail = fmaf(t, tail, 0.4136407427f);
  tail = fmaf(t, tail, 0.2448155054f) * t * exp2f(-0.72134752f * x * x);  // log2 e / 2
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// G(gate) * U(up).
struct GeluGated {
  CUTLASS_DEVICE float operator()(float gate, float up) const { return gelu(gate) * up; }
};
struct ReluGated {
  Coefficients const& given;
  CUTLASS_DEVICE float operator()(float gate, float up) const {
    return at_least(given.limit, gate) * up;
  }
};
struct LogisticGated {
  Coefficients const& given;
  bool alone;
  CUTLASS_DEVICE float operator()(float gate, float up) const {
    return logistic(gate, given, alone) *
           (at_most(given.limit, at_least(-given.limit, up)) + given.up_constant);
  }
};

// f(the activation that a launch asks for, as a function of gate and up).
template <class Element, class F>
CUTLASS_DEVICE void dispatch_activation(EpilogueArgs<Element> const& epilogue, F f) {
  if (epilogue.activation == Activation::Gelu) {
    f(GeluGated{});
  } else if (epilogue.activation == Activation::Relu) {
    f(ReluGated{epilogue.coefficients});
  } else {
    f(LogisticGated{epilogue.coefficients, epilogue.activation == Activation::Sigmoid});
  }
}

}  // namespace cuswiglu
