// Four rows of a block side by side: whatever is summed over columns runs column after column in every lane, so that the result
// is the same on every processor, vectorised or not.
#pragma once

#include <algorithm>

#include "core/quant/block_formats.h"
#include "core/quant/rounding.h"

namespace moed::quant {

inline constexpr int kLaneRows = 4;
using Lanes = float __attribute__((vector_size(kLaneRows * sizeof(float))));

struct LaneColumns {
  Lanes at[kBlockColumns];
};

inline Lanes Splat(float x) { return Lanes{x, x, x, x}; }

// Rows [first_row, first_row + 4) of an 8 x 32 row-major block.
inline LaneColumns Transpose(const float* weights, int first_row) {
  LaneColumns columns;
  for (int column = 0; column < kBlockColumns; ++column) {
    for (int lane = 0; lane < kLaneRows; ++lane) columns.at[column][lane] = weights[kBlockColumns * (first_row + lane) + column];
  }
  return columns;
}

inline Lanes Select(decltype(Lanes{} < Lanes{}) condition, Lanes yes, Lanes no) { return condition ? yes : no; }

// Clamps, then rounds to the nearest integer, ties to even.
inline Lanes RoundWithin(Lanes x, float low, float high) {
  x = Select(x < Splat(low), Splat(low), x);
  x = Select(x > Splat(high), Splat(high), x);
  return (x + Splat(kRoundingShift)) - Splat(kRoundingShift);
}

inline Lanes InverseOrZero(Lanes x) { return Select(x != Splat(0), Splat(1) / x, Splat(0)); }

// The nearest values that float16 has, never beyond its range; zero is positive.
inline Lanes AsFloat16(Lanes x) {
  for (int lane = 0; lane < kLaneRows; ++lane) {
    x[lane] = Float16ToFloat(FloatToFloat16(std::clamp<float>(x[lane], -kLargestFloat16, kLargestFloat16))) + 0.0f;
  }
  return x;
}

}  // namespace moed::quant
