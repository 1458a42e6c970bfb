// Two neighbours of a result, rounded and packed as stmatrix takes them.
#pragma once

#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>

namespace cuswiglu {

template <class Element>
CUTLASS_DEVICE uint32_t rounded_pair(float first, float second) {
  cutlass::Array<float, 2> y;
  y[0] = first;
  y[1] = second;
  cutlass::NumericArrayConverter<Element, float, 2> round;
  auto const rounded = round(y);
  return reinterpret_cast<uint32_t const&>(rounded);
}

}  // namespace cuswiglu
