// Four rows of a block side by side: whatever is summed over columns runs column after column in every lane, so that the result
// is the same on every processor, vectorised or not.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <bit>
#include <cstdint>

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

// a < b ? a : b, and a > b ? a : b. Compilers do not find the one instruction for it.
#if defined(__SSE__)
inline FourRows Lesser(FourRows a, FourRows b) { return _mm_min_ps(a, b); }
inline FourRows Greater(FourRows a, FourRows b) { return _mm_max_ps(a, b); }
#else
inline FourRows Lesser(FourRows a, FourRows b) { return Select(a < b, a, b); }
inline FourRows Greater(FourRows a, FourRows b) { return Select(a > b, a, b); }
#endif
inline FourRows Clamp(FourRows x, float low, float high) { return Lesser(Splat(high), Greater(Splat(low), x)); }

// Clamps, then rounds to the nearest integer, ties to even.
inline FourRows RoundWithin(FourRows x, float low, float high) {
  return (Clamp(x, low, high) + Splat(kRoundingShift)) - Splat(kRoundingShift);
}

inline FourRows InverseOrZero(FourRows x) { return Select(x != Splat(0), Splat(1) / x, Splat(0)); }

// The nearest values that float16 has, never beyond its range; zero is positive. x: finite.
inline FourRows AsFloat16(FourRows x) {
  using Bits = uint32_t __attribute__((vector_size(sizeof(FourRows))));
  constexpr float kSmallestNormal = 0x1p-14f;
  constexpr uint32_t kDropped = 0x1fff;  // bits of a float32 that float16 lacks
  const auto bits = std::bit_cast<Bits>(Clamp(x, -kLargestFloat16, kLargestFloat16));
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits rounded = (magnitude + (kDropped >> 1) + (magnitude >> 13 & 1u)) & ~kDropped;
  const FourRows small = (std::bit_cast<FourRows>(magnitude) + Splat(0.5f)) - Splat(0.5f);  // to a multiple of 2^-24
  const FourRows nearest =
      Select(std::bit_cast<FourRows>(magnitude) < Splat(kSmallestNormal), small, std::bit_cast<FourRows>(rounded));
  return std::bit_cast<FourRows>(std::bit_cast<Bits>(nearest) | (bits & 0x80000000u)) + Splat(0);
}

}  // namespace moed::quant
