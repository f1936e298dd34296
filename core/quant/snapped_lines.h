// Lines through the codes of a format whatever its scales can be, weighted: weight = scale * unit + offset, where a unit is one
// of the format's, one apart. Four rows at a time.
//   Units   Snap(x, column): the unit nearest to x that the column has; kLeast, kLargest: those of every column
//           Nearest(lines): the nearest lines that the format holds
//           Code(unit), PutLine(scale, offset, row): as the format writes them
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/quant/byte_scale.h"
#include "core/quant/four_rows.h"
#include "core/quant/line_fit.h"
#include "core/quant/row_block.h"

namespace moed::quant {

// Codes 0 to kLargestCode, and float16 scales and offsets.
template <int kLargestCode>
struct HalfUnits {
  static constexpr float kLeast = 0;
  static constexpr float kLargest = kLargestCode;
  static FourRows Snap(FourRows x, int) { return RoundWithin(x, kLeast, kLargest); }
  static Lines Nearest(const Lines& lines) { return {AsFloat16(lines.scale), AsFloat16(lines.offset)}; }
  static uint8_t Code(float unit) { return static_cast<uint8_t>(unit); }
  static void PutLine(float scale, float offset, RowBlock& row) {
    row.scale = FloatToFloat16(scale);
    row.offset = FloatToFloat16(offset);
  }
};

// The nearest scale of a byte. x: finite.
inline FourRows AsByteScale(FourRows x) {
  using Bits = uint32_t __attribute__((vector_size(sizeof(FourRows))));
  constexpr uint32_t kDropped = (1u << kByteScaleShift) - 1;
  const auto bits = std::bit_cast<Bits>(Clamp(x, kLeastByteScale, kLargestByteScale));
  return std::bit_cast<FourRows>((bits + (kDropped >> 1) + (bits >> kByteScaleShift & 1u)) & ~kDropped);
}

// Scales of a byte, and offsets of so many sixteenths of them.
struct ByteUnits {
  static constexpr float kLeastSteps = -128, kMostSteps = 127;
  static Lines Nearest(const Lines& lines) {
    // So that the offset is within its steps.
    const FourRows far = Greater(lines.offset, -lines.offset) * Splat(1 / (kOffsetStep * -kLeastSteps));
    const FourRows scale = AsByteScale(Greater(lines.scale, far));
    const FourRows steps = RoundWithin(lines.offset / scale * Splat(1 / kOffsetStep), kLeastSteps, kMostSteps);
    return {scale, scale * (steps * Splat(kOffsetStep))};
  }
  static uint8_t Code(float unit) { return static_cast<uint8_t>(unit); }
  static void PutLine(float scale, float offset, RowBlock& row) {
    row.scale = FloatToByteScale(scale);
    row.offset = static_cast<uint8_t>(static_cast<int8_t>(offset / scale * (1 / kOffsetStep)));
  }
};
struct Q2SUnits : ByteUnits {
  static constexpr float kLeast = 0;
  static constexpr float kLargest = 3;
  static FourRows Snap(FourRows x, int) { return RoundWithin(x, kLeast, kLargest); }
};
// Of a pair, the second column has one more.
struct Q2PUnits : ByteUnits {
  static constexpr float kLeast = 1;
  static constexpr float kLargest = 5;
  static FourRows Snap(FourRows x, int column) {
    return RoundWithin(x, kLeast, column % kBlockColumns < kBlockColumns / 2 ? kLargest : kLargest + 1);
  }
};

template <class Units>
FourRows UnitOn(const Lines& lines, FourRows inverse, FourRows weight, int column) {
  return Units::Snap((weight - lines.offset) * inverse, column);
}

// Least squares, alternating, from lines over the range and over parts of it; the best of all that the format holds. `weights`:
// of the columns' errors, positive.
template <class Units>
Lines FitSnapped(const FourRowsColumns& columns, const float* weights) {
  constexpr int kStarts = 3, kRounds = 4;
  FourRows low = columns.at[0], high = columns.at[0];
  for (const FourRows& weight : columns.at) {
    low = Lesser(weight, low);
    high = Greater(weight, high);
  }
  Lines best{Splat(0), Splat(0)};
  FourRows least = Splat(HUGE_VALF);
  for (int start = 0; start < kStarts; ++start) {
    constexpr float kNarrower = 0.15f;
    const FourRows scale = (high - low) * Splat((1 - kNarrower * static_cast<float>(start)) / (Units::kLargest - Units::kLeast));
    const FourRows middle = (low + high) * Splat(0.5f);
    // Where one weight stands everywhere, any scale does.
    const FourRows wide = Select(scale > Splat(0), scale, Greater(middle, -middle) * Splat(0.25f));
    Lines lines{wide, middle - wide * Splat((Units::kLargest + Units::kLeast) / 2)};
    for (int round = 0; round < kRounds; ++round) {
      lines = Units::Nearest(lines);
      const FourRows inverse = InverseOrZero(lines.scale);
      FourRows error = Splat(0), ones = Splat(0), units = Splat(0), squares = Splat(0), sum = Splat(0), cross = Splat(0);
      for (int column = 0; column < kBlockColumns; ++column) {
        const FourRows weight = columns.at[column], w = Splat(weights[column]);
        const FourRows unit = UnitOn<Units>(lines, inverse, weight, column);
        const FourRows miss = weight - (lines.scale * unit + lines.offset);
        error += w * (miss * miss);
        ones += w;
        units += w * unit;
        squares += w * (unit * unit);
        sum += w * weight;
        cross += w * (unit * weight);
      }
      best.scale = Select(error < least, lines.scale, best.scale);
      best.offset = Select(error < least, lines.offset, best.offset);
      least = Select(error < least, error, least);
      // Zero where one unit stands everywhere, and less than nothing by rounding: the scale stays.
      const FourRows determinant = ones * squares - units * units;
      const FourRows next = (ones * cross - units * sum) * InverseOrZero(determinant);
      lines.scale = Select(next > Splat(0), next, lines.scale);
      lines.offset = (sum - lines.scale * units) / ones;
    }
  }
  return best;
}

}  // namespace moed::quant
