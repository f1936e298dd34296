// Four rows of a block side by side: whatever is summed over columns runs column after column in every lane, so that the result
// is the same on every processor, vectorised or not.
#pragma once

#include <algorithm>

#include "core/quant/codec.h"
#include "core/quant/rounding.h"

namespace moed::quant {

inline constexpr int kRowsTogether = 4;
using FourRows = float __attribute__((vector_size(kRowsTogether * sizeof(float))));

struct FourRowsColumns {
  FourRows at[kBlockColumns];
};

inline FourRows Splat(float x) { return FourRows{x, x, x, x}; }

// Rows [first_row, first_row + 4) of an 8 x 32 row-major block.
inline FourRowsColumns Transpose(const float* weights, int first_row) {
  FourRowsColumns columns;
  for (int column = 0; column < kBlockColumns; ++column) {
    for (int lane = 0; lane < kRowsTogether; ++lane)
      columns.at[column][lane] = weights[kBlockColumns * (first_row + lane) + column];
  }
  return columns;
}

inline FourRows Select(decltype(FourRows{} < FourRows{}) condition, FourRows yes, FourRows no) { return condition ? yes : no; }

// Clamps, then rounds to the nearest integer, ties to even.
inline FourRows RoundWithin(FourRows x, float low, float high) {
  x = Select(x < Splat(low), Splat(low), x);
  x = Select(x > Splat(high), Splat(high), x);
  return (x + Splat(kRoundingShift)) - Splat(kRoundingShift);
}

inline FourRows InverseOrZero(FourRows x) { return Select(x != Splat(0), Splat(1) / x, Splat(0)); }

// The nearest values that float16 has, never beyond its range; zero is positive.
inline FourRows AsFloat16(FourRows x) {
  for (int lane = 0; lane < kRowsTogether; ++lane) {
    x[lane] = Float16ToFloat(FloatToFloat16(std::clamp<float>(x[lane], -kLargestFloat16, kLargestFloat16))) + 0.0f;
  }
  return x;
}

}  // namespace moed::quant
