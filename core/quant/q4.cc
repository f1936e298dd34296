// q4: weight = d * (q - 8), one float16 scale a row of a block, q in 0..15.
#include <cmath>

#include "core/quant/block_layouts.h"
#include "core/quant/four_rows.h"

namespace moed::quant {
namespace {

constexpr int kCodesOffset = 2 * kPanelRows;
constexpr int kHalfColumns = kBlockColumns / 2;  // the low nibbles' columns, then the high ones'
constexpr float kZeroCode = 8;
constexpr int kCandidates = 8;  // scales tried on each side of the plain one

// q - 8.
FourRows Level(FourRows weight, FourRows inverse_scale) { return RoundWithin(weight * inverse_scale, -kZeroCode, kZeroCode - 1); }

struct Choice {
  FourRows scale;
  FourRows squared_error;
};

// Keeps, per row, whichever of `best` and `scales`, one after the other, has the smallest sum of squared errors. Several are
// summed at once, since each sum is one chain of additions.
template <int kScales>
void KeepBest(const FourRowsColumns& columns, const FourRows (&scales)[kScales], Choice& best) {
  FourRows inverse[kScales], error[kScales];
  for (int i = 0; i < kScales; ++i) {
    inverse[i] = InverseOrZero(scales[i]);
    error[i] = Splat(0);
  }
  for (const FourRows& weight : columns.at) {
    for (int i = 0; i < kScales; ++i) {
      const FourRows miss = weight - scales[i] * Level(weight, inverse[i]);
      error[i] += miss * miss;
    }
  }
  for (int i = 0; i < kScales; ++i) {
    best.scale = Select(error[i] < best.squared_error, scales[i], best.scale);
    best.squared_error = Select(error[i] < best.squared_error, error[i], best.squared_error);
  }
}

// The scale that fits best the codes which `scale` gives.
FourRows Refit(const FourRowsColumns& columns, FourRows scale) {
  const FourRows inverse = InverseOrZero(scale);
  FourRows cross = Splat(0);
  FourRows square = Splat(0);
  for (const FourRows& weight : columns.at) {
    const FourRows level = Level(weight, inverse);
    cross += level * weight;
    square += level * level;
  }
  return AsFloat16(cross * InverseOrZero(square));
}

// The weight of greatest magnitude maps to -8, the longer side of the range; scales around that one share the error better.
FourRows ChooseScales(const FourRowsColumns& columns) {
  FourRows extreme = Splat(0);
  for (const FourRows& weight : columns.at) extreme = Select(weight * weight > extreme * extreme, weight, extreme);
  const auto candidate = [&](int step) { return AsFloat16(extreme / Splat(-kZeroCode + 0.125f * static_cast<float>(step))); };
  Choice best{Splat(0), Splat(HUGE_VALF)};
  for (int step = -kCandidates; step < kCandidates; step += 2) KeepBest(columns, {candidate(step), candidate(step + 1)}, best);
  KeepBest(columns, {candidate(kCandidates)}, best);
  KeepBest(columns, {Refit(columns, best.scale)}, best);
  return best.scale;
}

// Four rows at a time: `choose(columns, first_row)` gives their scales.
template <class Choose>
void Encode(const float* weights, std::byte* out, const Choose& choose) {
  for (int first_row = 0; first_row < kPanelRows; first_row += kRowsTogether) {
    const FourRowsColumns columns = Transpose(weights, first_row);
    const FourRows scales = choose(columns, first_row);
    const FourRows inverse = InverseOrZero(scales);
    for (int lane = 0; lane < kRowsTogether; ++lane) Store(out + 2 * (first_row + lane), FloatToFloat16(scales[lane]));
    for (int column = 0; column < kHalfColumns; ++column) {
      const FourRows low = Level(columns.at[column], inverse) + Splat(kZeroCode);
      const FourRows high = Level(columns.at[kHalfColumns + column], inverse) + Splat(kZeroCode);
      std::byte* at = out + kCodesOffset + kVectorBytes * (column / kGroupColumns) + column % kGroupColumns;
      for (int lane = 0; lane < kRowsTogether; ++lane) {
        at[kGroupColumns * (first_row + lane)] = std::byte(static_cast<int>(low[lane]) | static_cast<int>(high[lane]) << 4);
      }
    }
  }
}

void EncodeNearest(const float* weights, std::byte* out) {
  Encode(weights, out, [](const FourRowsColumns& columns, int) { return ChooseScales(columns); });
}

// Codes -7..7.
void EncodeChannel(const float* weights, const float* row_largest, std::byte* out) {
  Encode(weights, out, [row_largest](const FourRowsColumns&, int first_row) {
    return AsFloat16(Load<FourRows>(reinterpret_cast<const std::byte*>(row_largest + first_row)) / Splat(kZeroCode - 1));
  });
}

}  // namespace

const Codec kQ4Codec = {
    .decode_row = DecodeBlockRow<BlockLayout<FormatId::kQ4>>, .nearest = EncodeNearest, .channel = EncodeChannel};

}  // namespace moed::quant
