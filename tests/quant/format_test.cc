#include "core/quant/format.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/quant/codec.h"
#include "core/quant/encoding.h"
#include "core/quant/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace format_test {

using ::testing::HasSubstr;

std::vector<float> Gaussian(int count, uint32_t seed, float deviation = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> Pack(FormatId id, const std::vector<float>& weights, int rows, int cols) {
  std::vector<std::byte> packed(PackedBytes(id, rows, cols));
  const absl::Status status = EncodeRows(id, weights.data(), rows, cols, packed);
  EXPECT_TRUE(status.ok()) << status;
  return packed;
}

std::vector<float> Unpack(FormatId id, const std::vector<std::byte>& packed, int rows, int cols) {
  std::vector<float> weights(static_cast<size_t>(rows) * cols);
  for (int row = 0; row < rows; ++row) DecodeRow(id, packed.data(), cols, row, weights.data() + static_cast<size_t>(row) * cols);
  return weights;
}

// Those that quantizers make: others are only kept (ggml_types_test.cc).
std::vector<Format> Made() {
  std::vector<Format> made;
  for (const Format& format : Formats()) {
    if (Makes(QuantizerId::kRtn, format.id)) made.push_back(format);
  }
  EXPECT_GT(made.size(), 7u);
  return made;
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

// Largest error in one block of 32, given its weights: from the step between codes and the rounding of scales to float16.
double ErrorBound(FormatId id, std::span<const float> block) {
  float largest = 0;
  for (float w : block) largest = std::max(largest, std::fabs(w));
  const auto [low, high] = std::minmax_element(block.begin(), block.end());
  switch (id) {
    case FormatId::kF32:
      return 0;
    case FormatId::kF16:
      return largest * 0x1p-11 + 0x1p-25;
    case FormatId::kBF16:
      return largest * 0x1p-8;
    case FormatId::kQ8:
      return largest / 127 * 0.5 + largest * 0x1p-11 + 127 * 0x1p-25;
    case FormatId::kQ4:
      return largest / 8 * 1.2 + 8 * 0x1p-25;  // the far side of the range may be cut by a whole step
    case FormatId::kQ2:
      return (double{*high} - *low) / 2 + largest * 0x1p-9 + 4 * 0x1p-25;
    case FormatId::kQ4A:  // as q3: least squares may leave a far weight out by more than half a step
      return (double{*high} - *low) / 15 * 1.5 + largest * 0x1p-9 + 16 * 0x1p-25;
    case FormatId::kQ3:
      return (double{*high} - *low) / 7 * 1.5 + largest * 0x1p-9 + 8 * 0x1p-25;
    case FormatId::kQ2S:  // as q2; scales and offsets are of a few bits
      return ((double{*high} - *low) / 2 + largest / 32) * 1.07 + 0x1p-24;
    case FormatId::kQ2P:
      return ((double{*high} - *low) / 5 * 1.5 + largest / 32) * 1.07 + 0x1p-24;
    default:
      break;  // none
  }
  return -1;
}

TEST(Formats, ParseKnowsEveryRow) {
  for (const Format& format : Formats()) {
    const absl::StatusOr<FormatId> parsed = ParseFormat(format.name);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, format.id);
    EXPECT_EQ(&FormatOf(*parsed), &format);
  }
}

TEST(Formats, ParseListsTheKnownOnes) {
  for (std::string_view name : {"", "q5", "Q8", "f32 "}) {
    const absl::Status status = ParseFormat(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const Format& format : Formats()) EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(format.name)));
  }
}

TEST(Formats, PackedBytesCountsPaddedPanelsAndBlocks) {
  for (const Format& format : Formats()) {
    const int cols = format.block_columns;
    EXPECT_EQ(PackedBytes(format.id, 8, cols), format.panel_block_bytes);
    EXPECT_EQ(PackedBytes(format.id, 9, cols), 2 * format.panel_block_bytes);
    EXPECT_EQ(PackedBytes(format.id, 1, cols + 1), 2 * format.panel_block_bytes);
    EXPECT_EQ(PackedBytes(format.id, 200000, 3125 * cols), format.panel_block_bytes * 25000 * 3125);
  }
}

TEST(RoundTrip, StaysWithinTheBoundOverAwkwardShapes) {
  for (const Format& format : Made()) {
    for (auto [rows, cols] : {std::pair{1, 1}, {1, 32}, {7, 31}, {8, 32}, {9, 33}, {16, 64}, {21, 100}}) {
      for (float deviation : {1e-6f, 0.02f, 30.0f}) {
        const std::vector<float> weights = Gaussian(rows * cols, rows * 100 + cols, deviation);
        const std::vector<float> found = Unpack(format.id, Pack(format.id, weights, rows, cols), rows, cols);
        for (int row = 0; row < rows; ++row) {
          for (int first = 0; first < cols; first += 32) {
            std::vector<float> block(weights.begin() + row * cols + first,
                                     weights.begin() + row * cols + std::min(first + 32, cols));
            const size_t present = block.size();
            block.resize(32, 0.0f);  // padding takes part
            const double bound = ErrorBound(format.id, block);
            for (size_t i = 0; i < present; ++i) {
              EXPECT_LE(std::fabs(double{found[row * cols + first + i]} - block[i]), bound)
                  << format.name << " " << rows << "x" << cols << " row " << row << " column " << first + i;
            }
          }
        }
      }
    }
  }
}

TEST(RoundTrip, DecodedWeightsEncodeToTheSameWeights) {
  const int rows = 16, cols = 96;
  for (FormatId id : {FormatId::kF32, FormatId::kF16, FormatId::kBF16, FormatId::kQ8}) {
    const std::vector<float> once = Unpack(id, Pack(id, Gaussian(rows * cols, 3), rows, cols), rows, cols);
    EXPECT_EQ(Unpack(id, Pack(id, once, rows, cols), rows, cols), once) << FormatOf(id).name;
  }
}

TEST(RoundTrip, SameInputSameBytes) {
  const std::vector<float> weights = Gaussian(24 * 64, 5);
  for (const Format& format : Made()) EXPECT_EQ(Pack(format.id, weights, 24, 64), Pack(format.id, weights, 24, 64));
}

TEST(RoundTrip, SignalToNoise) {
  const int rows = 64, cols = 256;
  const std::vector<float> weights = Gaussian(rows * cols, 11);
  const double power = SquaredError(weights, std::vector<float>(weights.size(), 0.0f));
  // Relative error power of Gaussian weights; each format must beat its figure.
  const std::map<std::string_view, double> limits = {{"f32", 0},  {"f16", 1e-7}, {"bf16", 1e-5}, {"q8", 5e-5},  {"q4", 8e-3},
                                                     {"q2", 0.1}, {"q4a", 8e-3}, {"q3", 3e-2},   {"q2s", 0.11}, {"q2p", 0.055}};
  for (const Format& format : Made()) {
    ASSERT_TRUE(limits.contains(format.name)) << format.name;
    const double limit = limits.at(format.name);
    const double noise = SquaredError(weights, Unpack(format.id, Pack(format.id, weights, rows, cols), rows, cols));
    EXPECT_LE(noise / power, limit) << format.name;
    EXPECT_GE(noise / power, limit / 100) << format.name << ": the limit says nothing";
  }
}

// Against the plain choice: the extreme weight at code 0.
TEST(RoundTrip, Q4NeverWorseThanThePlainScale) {
  const std::vector<float> weights = Gaussian(8 * 32, 13);
  const std::vector<float> found = Unpack(FormatId::kQ4, Pack(FormatId::kQ4, weights, 8, 32), 8, 32);
  for (int row = 0; row < 8; ++row) {
    const std::vector<float> w(weights.begin() + 32 * row, weights.begin() + 32 * (row + 1));
    const float extreme = *std::max_element(w.begin(), w.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float scale = Float16ToFloat(FloatToFloat16(extreme / -8));
    std::vector<float> plain(32);
    for (int i = 0; i < 32; ++i) plain[i] = scale * std::clamp(std::nearbyint(w[i] / scale), -8.0f, 7.0f);
    const std::vector<float> chosen(found.begin() + 32 * row, found.begin() + 32 * (row + 1));
    EXPECT_LE(SquaredError(w, chosen), SquaredError(w, plain) * 1.000001);
  }
}

TEST(RoundTrip, Q2NeverWorseThanMinimumToMaximum) {
  const std::vector<float> weights = Gaussian(8 * 32, 17);
  const std::vector<float> found = Unpack(FormatId::kQ2, Pack(FormatId::kQ2, weights, 8, 32), 8, 32);
  for (int row = 0; row < 8; ++row) {
    const std::vector<float> w(weights.begin() + 32 * row, weights.begin() + 32 * (row + 1));
    const auto [low, high] = std::minmax_element(w.begin(), w.end());
    const float scale = Float16ToFloat(FloatToFloat16((*high - *low) / 3));
    const float offset = Float16ToFloat(FloatToFloat16(*low));
    std::vector<float> plain(32);
    for (int i = 0; i < 32; ++i) plain[i] = scale * std::clamp(std::nearbyint((w[i] - offset) / scale), 0.0f, 3.0f) + offset;
    const std::vector<float> chosen(found.begin() + 32 * row, found.begin() + 32 * (row + 1));
    EXPECT_LE(SquaredError(w, chosen), SquaredError(w, plain) * 1.000001);
  }
}

TEST(RoundTrip, ConstantsAndZerosAreKept) {
  for (const Format& format : Made()) {
    for (float constant : {0.0f, -0.0f, 0.5f, -8.0f}) {
      const std::vector<float> weights(8 * 32, constant);
      for (float found : Unpack(format.id, Pack(format.id, weights, 8, 32), 8, 32)) {
        EXPECT_NEAR(found, constant, std::fabs(constant) * 0.001) << format.name;
      }
    }
  }
}

TEST(Hostile, NotFiniteOrTooLargeIsNamed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int rows = 11, cols = 45;
  for (const Format& format : Made()) {
    std::vector<float> misfits = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
    if (format.largest < std::numeric_limits<float>::max()) {
      misfits.push_back(std::nextafter(format.largest, kInfinity));
      misfits.push_back(-std::numeric_limits<float>::max());
    }
    for (float misfit : misfits) {
      for (auto [row, column] : {std::pair{0, 0}, {7, 31}, {8, 32}, {rows - 1, cols - 1}}) {
        std::vector<float> weights = Gaussian(rows * cols, 1);
        weights[row * cols + column] = misfit;
        std::vector<std::byte> packed(PackedBytes(format.id, rows, cols));
        const absl::Status status = EncodeRows(format.id, weights.data(), rows, cols, packed, 4000);
        ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << format.name << " " << misfit;
        const std::string message(status.message());
        EXPECT_THAT(message, HasSubstr("row " + std::to_string(4000 + row) + ","));
        EXPECT_THAT(message, HasSubstr("column " + std::to_string(column) + ":"));
        EXPECT_THAT(message, HasSubstr(std::string(format.name)));
        const std::string after = message.substr(message.find("weight ") + 7);
        const float named = std::strtof(after.c_str(), nullptr);
        EXPECT_TRUE(named == misfit || (std::isnan(named) && std::isnan(misfit))) << message;
      }
    }
  }
}

TEST(Hostile, TheLargestWeightsStayFinite) {
  for (const Format& format : Made()) {
    for (int pattern = 0; pattern < 3; ++pattern) {
      std::vector<float> weights(8 * 32, pattern == 0 ? format.largest : 0.0f);
      if (pattern == 1) weights[40] = -format.largest;
      if (pattern == 2) {
        for (size_t i = 0; i < weights.size(); ++i) weights[i] = i % 2 == 0 ? format.largest : -format.largest;
      }
      const std::vector<float> found = Unpack(format.id, Pack(format.id, weights, 8, 32), 8, 32);
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_TRUE(std::isfinite(found[i])) << format.name;
        EXPECT_NEAR(found[i] / format.largest, weights[i] / format.largest, 0.13) << format.name << " pattern " << pattern;
      }
    }
  }
}

TEST(Hostile, TheSmallestWeightsDoNotGrow) {
  for (const Format& format : Made()) {
    for (float tiny : {std::numeric_limits<float>::denorm_min(), 1e-30f, 0x1p-24f, 0x1p-26f}) {
      const std::vector<float> weights = {tiny, -tiny, tiny / 2, 0};
      for (float found : Unpack(format.id, Pack(format.id, weights, 1, 4), 1, 4)) {
        EXPECT_LE(std::fabs(found), std::max(2 * tiny, 0x1p-24f)) << format.name;
      }
    }
  }
}

TEST(Decode, RowsAgreeWithBlocks) {
  std::mt19937 random(23);
  for (const Format& format : Formats()) {
    std::vector<std::byte> packed(2 * 3 * format.panel_block_bytes);
    for (std::byte& byte : packed) byte = std::byte(random() & 0x3f);  // any codes, finite scales
    const int cols = format.block_columns;
    for (int row = 0; row < 16; ++row) {
      std::vector<float> whole(3 * cols), expected(3 * cols);
      DecodeRow(format.id, packed.data(), 3 * cols, row, whole.data());
      for (int block = 0; block < 3; ++block) {
        const std::byte* at = packed.data() + (row / 8 * 3 + block) * format.panel_block_bytes;
        format.codec.decode_row(at, row % 8, &expected[cols * block]);
      }
      EXPECT_EQ(whole, expected) << format.name << " row " << row;
    }
  }
}

}  // namespace format_test
}  // namespace moed
