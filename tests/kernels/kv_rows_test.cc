#include "core/kernels/kv_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace moed {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What `numbers` become by being stored and widened. Beyond the row nothing is written.
std::vector<float> Kept(KvFormat format, const std::vector<float>& numbers) {
  const int head_dim = static_cast<int>(numbers.size());
  constexpr unsigned char kUntouched = 0xa5;
  std::vector<unsigned char> row(KvRowBytes(format, head_dim) + 1, kUntouched);
  StoreKvRow(format, numbers.data(), head_dim, row.data());
  EXPECT_EQ(row.back(), kUntouched);
  std::vector<float> kept(numbers.size());
  WidenKvRow(format, row.data(), head_dim, kept.data());
  return kept;
}

TEST(KvRowsTest, BytesOfARow) {
  EXPECT_EQ(KvRowBytes(KvFormat::kF32, 128), 512);
  EXPECT_EQ(KvRowBytes(KvFormat::kF16, 128), 256);
  EXPECT_EQ(KvRowBytes(KvFormat::kQ8, 128), 128 + 4 * 2);
  EXPECT_EQ(KvRowBytes(KvFormat::kQ8, 33), 33 + 2 * 2);
}

TEST(KvRowsTest, HalvesAreRoundedAndNeverInfinite) {
  const std::vector<float> kept = Kept(KvFormat::kF16, {1.0f / 3, 1e6f, -1e6f, kInfinity, 0x1p-24f, -0.0f});
  EXPECT_EQ(kept, (std::vector<float>{0x1.554p-2f, 65504, -65504, 65504, 0x1p-24f, 0}));
  EXPECT_TRUE(std::signbit(kept[5]));
}

TEST(KvRowsTest, CodesByHand) {
  // 127 / 127 = 1 is the scale: numbers become whole, halves even. The next 32 have a scale of their own, 0.5.
  std::vector<float> numbers(40, 0.0f), expected(40, 0.0f);
  const float first[] = {127, 2.5f, 3.5f, -0.4f, -126.6f}, kept_first[] = {127, 2, 4, 0, -127};
  const float second[] = {-63.5f, 0.75f, 0.26f}, kept_second[] = {-63.5f, 1, 0.5f};
  for (int i = 0; i < 5; ++i) numbers[i] = first[i], expected[i] = kept_first[i];
  for (int i = 0; i < 3; ++i) numbers[32 + i] = second[i], expected[32 + i] = kept_second[i];
  EXPECT_EQ(Kept(KvFormat::kQ8, numbers), expected);
}

TEST(KvRowsTest, CodesAreOffByHalfAStepAtMost) {
  std::mt19937 random(1);
  for (const float size : {1.0f, 1e3f}) {
    std::normal_distribution<float> gaussian(0, size);
    for (int head_dim : {31, 32, 33, 64, 128}) {
      std::vector<float> numbers(head_dim);
      for (float& number : numbers) number = gaussian(random);
      const std::vector<float> kept = Kept(KvFormat::kQ8, numbers);
      for (int first = 0; first < head_dim; first += kKvScaleColumns) {
        const int end = std::min(head_dim, first + kKvScaleColumns);
        float largest = 0;
        for (int i = first; i < end; ++i) largest = std::max(largest, std::fabs(numbers[i]));
        // Half a step, and an eighth for the scale that was rounded itself.
        for (int i = first; i < end; ++i) EXPECT_NEAR(kept[i], numbers[i], largest / 127 * 0.63f) << size << " " << i;
      }
    }
  }
}

TEST(KvRowsTest, CodesOfAwkwardNumbers) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> numbers(70, 1.0f);
    numbers[40] = bad;
    const std::vector<float> kept = Kept(KvFormat::kQ8, numbers);
    for (int i = 0; i < 70; ++i) EXPECT_EQ(std::isnan(kept[i]), i >= 32 && i < 64) << i;
  }
  EXPECT_EQ(Kept(KvFormat::kQ8, {0, 0, -0.0f}), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Kept(KvFormat::kQ8, {1e-7f, -1e-7f}), (std::vector<float>{0, 0})) << "below the smallest scale";
  EXPECT_EQ(Kept(KvFormat::kQ8, {3e38f, -3e38f, 65504}), (std::vector<float>{127.0f * 65504, -127.0f * 65504, 65504}));
}

// Every key of a page is found again, whatever is placed after it; all of them fill the page's keys and nothing else.
TEST(KvRowsTest, KeysOfAPageAreTheirRowsTransposed) {
  constexpr int kPageTokens = 16;
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
    for (const int head_dim : {1, 31, 33, 64}) {
      const size_t row_bytes = KvRowBytes(format, head_dim);
      std::vector<std::vector<unsigned char>> rows(kPageTokens, std::vector<unsigned char>(row_bytes));
      std::mt19937 random(head_dim);
      constexpr unsigned char kUntouched = 0xa5;
      std::vector<unsigned char> keys(kPageTokens * row_bytes + 1, kUntouched);
      for (int slot = 0; slot < kPageTokens; ++slot) {
        for (unsigned char& byte : rows[slot]) byte = static_cast<unsigned char>(random());
        PlaceKvKey(format, rows[slot].data(), head_dim, kPageTokens, slot, keys.data());
      }
      EXPECT_EQ(keys.back(), kUntouched);
      for (int slot = 0; slot < kPageTokens; ++slot) {
        std::vector<unsigned char> row(row_bytes);
        TakeKvKey(format, keys.data(), head_dim, kPageTokens, slot, row.data());
        EXPECT_EQ(row, rows[slot]) << kKvFormatNames[static_cast<int>(format)] << " " << head_dim << " " << slot;
      }
    }
  }
  // By hand: position 5 of a page with two codes a position, then the scales.
  unsigned char keys[64] = {};
  const unsigned char row[] = {1, 2, 3, 4};
  PlaceKvKey(KvFormat::kQ8, row, 2, kPageTokens, 5, keys);
  EXPECT_EQ(keys[5], 1);
  EXPECT_EQ(keys[16 + 5], 2);
  EXPECT_EQ(keys[32 + 2 * 5], 3);
  EXPECT_EQ(keys[32 + 2 * 5 + 1], 4);
}

}  // namespace
}  // namespace moed
