#include "core/quant/encoding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/quant/half.h"
#include "core/quant/line_fit.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace encoding_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Encoding> Encodings() {
  std::vector<Encoding> encodings;
  for (const Quantizer& quantizer : Quantizers()) {
    for (const Format& format : Formats()) {
      if (Makes(quantizer.id, format.id)) encodings.push_back({format.id, quantizer.id});
    }
  }
  return encodings;
}

std::vector<float> Gaussian(int count, uint32_t seed, float deviation = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> Pack(const Encoding& encoding, const std::vector<float>& weights, int rows, int cols) {
  std::vector<std::byte> packed(PackedBytes(encoding.format, rows, cols));
  const absl::Status status = EncodeRows(encoding, weights.data(), rows, cols, packed);
  EXPECT_TRUE(status.ok()) << status;
  return packed;
}

std::vector<float> Decoded(const Encoding& encoding, const std::vector<float>& weights, int rows, int cols) {
  const std::vector<std::byte> packed = Pack(encoding, weights, rows, cols);
  std::vector<float> found(weights.size());
  for (int row = 0; row < rows; ++row) {
    DecodeRow(encoding.format, packed.data(), cols, row, found.data() + static_cast<size_t>(row) * cols);
  }
  return found;
}

float HalfAt(const std::vector<std::byte>& bytes, size_t offset) {
  return Float16ToFloat(
      static_cast<uint16_t>(std::to_integer<int>(bytes[offset]) | std::to_integer<int>(bytes[offset + 1]) << 8));
}

// The formats that `quantizer` makes: one at least.
std::vector<FormatId> MadeBy(QuantizerId quantizer) {
  std::vector<FormatId> made;
  for (const Format& format : Formats()) {
    if (Makes(quantizer, format.id)) made.push_back(format.id);
  }
  EXPECT_FALSE(made.empty());
  return made;
}

float LargestCode(FormatId id) {
  const Format& format = FormatOf(id);
  return std::exp2(8.0f * static_cast<float>(format.panel_block_bytes - format.scale_bytes) / (8 * 32)) - 1;
}

TEST(Encodings, NamesAreReadBack) {
  for (const Encoding& encoding : Encodings()) {
    const auto parsed = ParseEncoding(EncodingName(encoding));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->format, encoding.format);
    EXPECT_EQ(parsed->quantizer, encoding.quantizer);
  }
  EXPECT_EQ(EncodingName({FormatId::kQ2}), "q2");
  EXPECT_EQ(EncodingName(*ParseEncoding("q8:rtn")), "q8");
  EXPECT_EQ(EncodingName({FormatId::kQ3, QuantizerId::kHqq}), "q3:hqq");
}

TEST(Encodings, WhatIsNotKnownIsAnErrorThatListsWhatIs) {
  const struct {
    std::string text;
    std::string expected;
  } cases[] = {
      {"q5:hqq", "'q5'; known: f32, f16, bf16, q8, q4, q2, q4a, q3, q2s, q2p"},
      {"q4_k",
       "'q4_k' is kept from checkpoints and cannot be made; what can be made: f32, f16, bf16, q8, q4, q2, q4a, q3, q2s, q2p"},
      {"q2:awq", "'awq' in 'q2:awq'; known: rtn, hqq, channel, gptq"},
      {"q2:", "'' in 'q2:'; known: rtn"},
      {"q8:hqq", "'hqq' does not make q8; it makes: q2, q4a, q3"},
      {"q8:gptq", "'gptq' does not make q8; it makes: q2, q4a, q3, q2s, q2p"},
      {"bf16:channel", "'channel' does not make bf16; it makes: q8, q4, q2, q4a, q3"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(std::string(ParseEncoding(text).status().message()), HasSubstr(expected));
  }
}

TEST(Encodings, EveryOneIsFiniteAndWithinTheWeights) {
  for (const Encoding& encoding : Encodings()) {
    for (float deviation : {1e-6f, 0.02f, 30.0f}) {
      const int rows = 21, cols = 100;
      const std::vector<float> weights = Gaussian(rows * cols, 5, deviation);
      const std::vector<float> found = Decoded(encoding, weights, rows, cols);
      float largest = 0, widest = 0;
      for (float w : weights) largest = std::max(largest, std::fabs(w));
      for (float w : found) widest = std::max(widest, std::fabs(w));
      EXPECT_LE(widest, largest * 1.25f + 0x1p-22f) << EncodingName(encoding) << " " << deviation;
      EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](float w) { return std::isfinite(w); }));
    }
    const std::vector<float> constant(8 * 64, -0.75f), zeros(8 * 64, 0.0f);
    EXPECT_EQ(Decoded(encoding, zeros, 8, 64), zeros) << EncodingName(encoding);
    for (float w : Decoded(encoding, constant, 8, 64)) EXPECT_NEAR(w, -0.75f, 0.001f) << EncodingName(encoding);
    std::vector<float> extreme(8 * 64, FormatOf(encoding.format).largest);
    for (size_t i = 0; i < extreme.size(); i += 2) extreme[i] = -extreme[i];
    for (float w : Decoded(encoding, extreme, 8, 64)) EXPECT_TRUE(std::isfinite(w)) << EncodingName(encoding);
  }
}

// Of each row: the sum of |(weight - decoded) / scale|^(3/4).
std::array<double, 4> SparseError(const quant::FourRowsColumns& columns, const quant::Lines& lines, float largest_code) {
  std::array<double, 4> errors{};
  for (size_t lane = 0; lane < errors.size(); ++lane) {
    const double scale = lines.scale[lane], offset = lines.offset[lane];
    if (scale == 0) continue;
    for (const quant::FourRows& column : columns.at) {
      const double code = std::clamp(std::nearbyint((column[lane] - offset) / scale), 0.0, double{largest_code});
      errors[lane] += std::pow(std::abs((column[lane] - (scale * code + offset)) / scale), 0.75);
    }
  }
  return errors;
}

// By hand, first step from the range's line: 30 weights of 0, one of 3, one of 0.6; scale 1, z = 0, so code(0.6) = 1 and its
// error e = 0.6 - 1 = -0.4. Shrunk by |e|^(-1/4) / 10 = 0.12574 it is s = -0.27426; z = mean(q - (x - s)) = (1 - 0.6 - 0.27426)
// / 32.
TEST(HalfQuadratic, OneStepByHand) {
  quant::FourRowsColumns columns{};
  columns.at[5] = quant::Splat(3);
  columns.at[9] = quant::Splat(0.6f);
  const quant::Lines range = quant::RangeLines(columns, 3);
  EXPECT_EQ(range.scale[0], 1);
  EXPECT_EQ(range.offset[0], 0);
  EXPECT_NEAR(SparseError(columns, range, 3)[0], std::pow(0.4, 0.75), 1e-6);
  // The zero point 0.12574 / 32 would move 31 exact weights off theirs to mend one: its sparse error is larger, and it is not
  // kept.
  EXPECT_GT(31 * std::pow(0.12574 / 32, 0.75) + std::pow(0.4 - 0.12574 / 32, 0.75), std::pow(0.4, 0.75));
  const quant::Lines kept = quant::HalfQuadraticLines(columns, 3);
  EXPECT_EQ(kept.scale[0], 1);
  EXPECT_EQ(kept.offset[0], 0);
  // Least squares moves the line.
  EXPECT_NE(quant::LeastSquaresLines(columns, 3).offset[0], 0);
}

// 16 weights of 0.3 and 14 of 1.3 between one 0 and one 3: one unit apart, so moving the offset by 0.3 makes 30 of 32 exact and
// leaves the range's ends off by 0.3.
TEST(HalfQuadratic, MostWeightsComeRightAndFarOnesStayFar) {
  quant::FourRowsColumns columns{};
  for (int i = 0; i < 30; ++i) columns.at[i] = quant::Splat(i < 16 ? 0.3f : 1.3f);
  columns.at[30] = quant::Splat(0);
  columns.at[31] = quant::Splat(3);
  const quant::Lines lines = quant::HalfQuadraticLines(columns, 3);
  EXPECT_EQ(lines.scale[0], 1);
  EXPECT_NEAR(lines.offset[0], 0.3f, 0.03f);
  EXPECT_LT(SparseError(columns, lines, 3)[0], 0.5f * SparseError(columns, quant::RangeLines(columns, 3), 3)[0]);
}

TEST(HalfQuadratic, NeverRaisesTheSparseErrorAndMostlyLowersIt) {
  for (FormatId format : MadeBy(QuantizerId::kHqq)) {
    int lower = 0, all = 0;
    for (uint32_t seed = 0; seed < 50; ++seed) {
      const quant::FourRowsColumns columns = quant::Transpose(Gaussian(8 * 32, seed).data(), 0);
      const float largest_code = LargestCode(format);
      const std::array<double, 4> before = SparseError(columns, quant::RangeLines(columns, largest_code), largest_code);
      const std::array<double, 4> after = SparseError(columns, quant::HalfQuadraticLines(columns, largest_code), largest_code);
      for (int lane = 0; lane < quant::kRowsTogether; ++lane, ++all) {
        EXPECT_LE(after[lane], before[lane] * (1 + 1e-5));
        lower += after[lane] < before[lane] * (1 - 1e-5);
      }
    }
    EXPECT_GT(lower, all / 2) << FormatOf(format).name;
  }
}

// A matrix times a power of two has the same codes.
TEST(HalfQuadratic, DoesNotDependOnTheUnit) {
  const std::vector<float> weights = Gaussian(8 * 32, 3);
  std::vector<float> doubled = weights;
  for (float& w : doubled) w *= 8;
  for (FormatId format : MadeBy(QuantizerId::kHqq)) {
    const std::vector<std::byte> one = Pack({format, QuantizerId::kHqq}, weights, 8, 32);
    const std::vector<std::byte> other = Pack({format, QuantizerId::kHqq}, doubled, 8, 32);
    EXPECT_TRUE(std::equal(one.begin() + 32, one.end(), other.begin() + 32)) << FormatOf(format).name;
  }
}

// Row r has the magnitude 2^r somewhere in its second block: every block of the row carries the scale that follows from it.
TEST(Channel, OneScaleARowByHand) {
  const int rows = 11, cols = 70, blocks = 3;
  std::vector<float> weights = Gaussian(rows * cols, 7, 0.1f);
  for (int row = 0; row < rows; ++row)
    weights[row * cols + 40 + row] = row % 2 == 0 ? std::ldexp(1.0f, row) : -std::ldexp(1.0f, row);
  for (FormatId format : MadeBy(QuantizerId::kChannel)) {
    // The range of levels, 2 x largest magnitude, has so many steps; without an offset the lowest code is not used.
    const float steps = LargestCode(format) - (FormatOf(format).scale_bytes == 16 ? 1 : 0);
    const std::vector<std::byte> packed = Pack({format, QuantizerId::kChannel}, weights, rows, cols);
    for (int row = 0; row < rows; ++row) {
      const float expected = std::ldexp(2.0f, row) / steps;
      for (int block = 0; block < blocks; ++block) {
        const size_t at = FormatOf(format).panel_block_bytes * (row / 8 * blocks + block);
        EXPECT_NEAR(HalfAt(packed, at + 2 * (row % 8)), expected, expected * 0x1p-10f) << FormatOf(format).name;
        if (steps == 3) {
          EXPECT_NEAR(HalfAt(packed, at + 16 + 2 * (row % 8)), -std::ldexp(1.0f, row), std::ldexp(1.0f, row - 9));
        }
      }
    }
    // No weight is further from its level than half a step, and the largest ones are levels.
    const std::vector<float> found = Decoded({format, QuantizerId::kChannel}, weights, rows, cols);
    for (int row = 0; row < rows; ++row) {
      const float step = std::ldexp(2.0f, row) / steps;
      for (int column = 0; column < cols; ++column) {
        EXPECT_NEAR(found[row * cols + column], weights[row * cols + column], step * 0.51f) << FormatOf(format).name;
      }
      EXPECT_NEAR(found[row * cols + 40 + row], weights[row * cols + 40 + row], step * 0.01f);
    }
  }
}

TEST(Hostile, EveryQuantizerNamesTheWeightThatDoesNotFit) {
  for (const Encoding& encoding : Encodings()) {
    for (float misfit : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> weights = Gaussian(9 * 40, 1);
      weights[8 * 40 + 33] = misfit;
      std::vector<std::byte> packed(PackedBytes(encoding.format, 9, 40));
      const absl::Status status = EncodeRows(encoding, weights.data(), 9, 40, packed, 100);
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("row 108, column 33"), HasSubstr("does not fit")));
    }
  }
}

}  // namespace encoding_test
}  // namespace moed
