#include "core/quant/line_fit.h"

#include <cmath>

namespace moed::quant {
namespace {

constexpr float kCount = kBlockColumns;
constexpr int kLeastSquaresRounds = 6;

// As HQQ's authors set them, but for p, theirs being 0.7: |e|^(3/4) is made of square roots, which every processor rounds alike.
constexpr int kHalfQuadraticRounds = 20;
constexpr float kBeta = 10;
constexpr float kKappa = 1.01f;

FourRows Magnitude(FourRows x) { return Select(x < Splat(0), -x, x); }

FourRows Root(FourRows x) {
  for (int lane = 0; lane < kRowsTogether; ++lane) x[lane] = std::sqrt(x[lane]);
  return x;
}

// The error of `lines` with the codes they give, and the lines that fit those codes best.
struct Fit {
  FourRows squared_error;
  Lines next;
};

Fit Evaluate(const FourRowsColumns& columns, const Lines& lines, float largest_code) {
  const FourRows inverse = InverseOrZero(lines.scale);
  FourRows error = Splat(0), codes = Splat(0), squares = Splat(0), sum = Splat(0), cross = Splat(0);
  for (const FourRows& weight : columns.at) {
    const FourRows code = CodeOn(lines, inverse, weight, largest_code);
    const FourRows miss = weight - (lines.scale * code + lines.offset);
    error += miss * miss;
    codes += code;
    squares += code * code;
    sum += weight;
    cross += code * weight;
  }
  // Zero, and so is the scale, where one code stands everywhere.
  const FourRows determinant = Splat(kCount) * squares - codes * codes;
  const FourRows scale = AsFloat16((Splat(kCount) * cross - codes * sum) * InverseOrZero(determinant));
  return {error, {scale, AsFloat16((sum - scale * codes) / Splat(kCount))}};
}

// Keeps, per row, whichever line has the smaller error.
struct Best {
  Lines lines;
  FourRows error = Splat(HUGE_VALF);
  void Offer(const Lines& other, FourRows other_error) {
    lines.scale = Select(other_error < error, other.scale, lines.scale);
    lines.offset = Select(other_error < error, other.offset, lines.offset);
    error = Select(other_error < error, other_error, error);
  }
};

// The sparse error of `lines` (the sum of |(weight - decoded) / scale|^p over the columns, zero where the scale is), and the
// offset for the codes they give when all but the shrunken part of their errors is made good.
struct SparseFit {
  FourRows error;
  FourRows next_offset;
};

SparseFit EvaluateSparse(const FourRowsColumns& columns, const Lines& lines, float largest_code, float beta) {
  const FourRows inverse = InverseOrZero(lines.scale);
  FourRows total = Splat(0);
  FourRows sum = Splat(0);  // of q - (x - s)
  for (const FourRows& weight : columns.at) {
    const FourRows code = CodeOn(lines, inverse, weight, largest_code);
    const FourRows error = (weight - (lines.scale * code + lines.offset)) * inverse;
    const FourRows magnitude = Magnitude(error), root = Root(magnitude), fourth_root = Root(root);
    total += root * fourth_root;
    const FourRows left = magnitude - Splat(1) / (Splat(beta) * fourth_root);  // minus infinity for 0
    const FourRows kept = Select(left > Splat(0), left, Splat(0));
    sum += code - (weight * inverse - Select(error < Splat(0), -kept, kept));
  }
  return {total, AsFloat16(-lines.scale * (sum / Splat(kCount)))};
}

}  // namespace

Lines RangeLines(const FourRowsColumns& columns, float largest_code) {
  FourRows low = columns.at[0], high = columns.at[0];
  for (const FourRows& weight : columns.at) {
    low = Select(weight < low, weight, low);
    high = Select(weight > high, weight, high);
  }
  return {AsFloat16((high - low) / Splat(largest_code)), AsFloat16(low)};
}

Lines LeastSquaresLines(const FourRowsColumns& columns, float largest_code) {
  Lines lines = RangeLines(columns, largest_code);
  Best best{lines};
  for (int round = 0; round < kLeastSquaresRounds; ++round) {
    const Fit fit = Evaluate(columns, lines, largest_code);
    best.Offer(lines, fit.squared_error);
    lines = fit.next;
  }
  return best.lines;
}

Lines HalfQuadraticLines(const FourRowsColumns& columns, float largest_code) {
  Lines lines = RangeLines(columns, largest_code);
  Best best{lines};
  float beta = kBeta;
  for (int round = 0; round <= kHalfQuadraticRounds; ++round, beta *= kKappa) {
    const SparseFit fit = EvaluateSparse(columns, lines, largest_code, beta);
    best.Offer(lines, fit.error);
    // Where one weight stands everywhere the scale is zero and the offset is that weight already.
    lines.offset = Select(lines.scale != Splat(0), fit.next_offset, lines.offset);
  }
  return best.lines;
}

Lines SymmetricLines(FourRows largest, float largest_code) {
  const FourRows scale = AsFloat16(Splat(2) * largest / Splat(largest_code));
  return {scale, AsFloat16(-scale * Splat(largest_code / 2))};
}

}  // namespace moed::quant
