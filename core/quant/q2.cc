// q2: weight = d * q + m, one float16 scale and one float16 offset a row of a block, q in 0..3.
#include <cmath>

#include "core/quant/block_formats.h"
#include "core/quant/lanes.h"

namespace moed::quant {
namespace {

constexpr int kOffsetsOffset = 2 * kPanelRows;
constexpr int kCodesOffset = 4 * kPanelRows;
constexpr int kVectorBytes = kGroupColumns * kPanelRows;
constexpr int kVectors = 2;
constexpr int kCodesPerByte = 4;
constexpr float kLargestCode = 3;
constexpr int kRounds = 6;  // of alternating least squares

// Four rows' lines; both parts are already rounded to float16.
struct Lines {
  Lanes scale;
  Lanes offset;
};

Lanes Code(Lanes weight, const Lines& lines, Lanes inverse_scale) {
  return RoundWithin((weight - lines.offset) * inverse_scale, 0, kLargestCode);
}

// The error of `lines` with the codes they give, and the lines that fit those codes best.
struct Fit {
  Lanes squared_error;
  Lines next;
};

Fit Evaluate(const LaneColumns& columns, const Lines& lines) {
  constexpr float kCount = kBlockColumns;
  const Lanes inverse = InverseOrZero(lines.scale);
  Lanes error = Splat(0), codes = Splat(0), squares = Splat(0), sum = Splat(0), cross = Splat(0);
  for (const Lanes& weight : columns.at) {
    const Lanes code = Code(weight, lines, inverse);
    const Lanes miss = weight - (lines.scale * code + lines.offset);
    error += miss * miss;
    codes += code;
    squares += code * code;
    sum += weight;
    cross += code * weight;
  }
  // Zero, and so is the scale, where one code stands everywhere.
  const Lanes determinant = Splat(kCount) * squares - codes * codes;
  const Lanes scale = AsFloat16((Splat(kCount) * cross - codes * sum) * InverseOrZero(determinant));
  return {error, {scale, AsFloat16((sum - scale * codes) / Splat(kCount))}};
}

// Starts from the line through minimum and maximum, then fits line to codes and codes to line.
Lines ChooseLines(const LaneColumns& columns) {
  Lanes low = columns.at[0], high = columns.at[0];
  for (const Lanes& weight : columns.at) {
    low = Select(weight < low, weight, low);
    high = Select(weight > high, weight, high);
  }
  Lines lines{AsFloat16((high - low) / Splat(kLargestCode)), AsFloat16(low)};
  Lines best = lines;
  Lanes best_error = Splat(HUGE_VALF);
  for (int round = 0; round < kRounds; ++round) {
    const Fit fit = Evaluate(columns, lines);
    best.scale = Select(fit.squared_error < best_error, lines.scale, best.scale);
    best.offset = Select(fit.squared_error < best_error, lines.offset, best.offset);
    best_error = Select(fit.squared_error < best_error, fit.squared_error, best_error);
    lines = fit.next;
  }
  return best;
}

// Columns of the four codes in byte j of lane r of vector v.
int ColumnOf(int i, int v, int j) { return 8 * i + kGroupColumns * v + j; }

}  // namespace

void EncodeQ2(const float* weights, std::byte* out) {
  for (int first_row = 0; first_row < kPanelRows; first_row += kLaneRows) {
    const LaneColumns columns = Transpose(weights, first_row);
    const Lines lines = ChooseLines(columns);
    const Lanes inverse = InverseOrZero(lines.scale);
    for (int lane = 0; lane < kLaneRows; ++lane) {
      Store(out + 2 * (first_row + lane), FloatToFloat16(lines.scale[lane]));
      Store(out + kOffsetsOffset + 2 * (first_row + lane), FloatToFloat16(lines.offset[lane]));
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int j = 0; j < kGroupColumns; ++j) {
        Lanes bits = Splat(0);  // the four codes as digits to the base 4
        for (int i = kCodesPerByte - 1; i >= 0; --i) {
          bits = bits * Splat(4) + Code(columns.at[ColumnOf(i, v, j)], lines, inverse);
        }
        std::byte* at = out + kCodesOffset + kVectorBytes * v + j;
        for (int lane = 0; lane < kLaneRows; ++lane) {
          at[kGroupColumns * (first_row + lane)] = std::byte(static_cast<int>(bits[lane]));
        }
      }
    }
  }
}

void DecodeRowQ2(const std::byte* in, int row, float* weights) {
  const float scale = LoadScale(in, row);
  const float offset = LoadScale(in + kOffsetsOffset, row);
  for (int v = 0; v < kVectors; ++v) {
    for (int j = 0; j < kGroupColumns; ++j) {
      const int bits = Load<uint8_t>(in + kCodesOffset + kVectorBytes * v + kGroupColumns * row + j);
      for (int i = 0; i < kCodesPerByte; ++i) {
        weights[ColumnOf(i, v, j)] = scale * static_cast<float>((bits >> (2 * i)) & 3) + offset;
      }
    }
  }
}

}  // namespace moed::quant
