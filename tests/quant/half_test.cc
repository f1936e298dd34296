#include "core/quant/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/quant/four_rows.h"
#include "core/quant/rounding.h"
#include "gtest/gtest.h"

namespace moed {
namespace half_test {

TEST(Float16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = Float16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(value)))) << bits;
    } else {
      EXPECT_EQ(FloatToFloat16(value), bits);
    }
  }
}

TEST(Float16, KnownValues) {
  EXPECT_EQ(Float16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(Float16ToFloat(0xc000), -2.0f);
  EXPECT_EQ(Float16ToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(Float16ToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(Float16ToFloat(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(FloatToFloat16(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToFloat16(-0.0f), 0x8000);
}

// Between neighbours the nearer one wins, and the even one on a tie.
TEST(Float16, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = Float16ToFloat(bits);
    const float high = Float16ToFloat(bits + 1);
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(FloatToFloat16(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(FloatToFloat16(std::nextafter(middle, low)), bits);
    EXPECT_EQ(FloatToFloat16(std::nextafter(middle, high)), bits + 1);
  }
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value)))) << bits;
    } else {
      EXPECT_EQ(FloatToBFloat16(value), bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float middle = std::bit_cast<float>(bits << 16 | 0x8000u);
    EXPECT_EQ(FloatToBFloat16(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(bits << 16 | 0x7fffu)), bits);
    EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(bits << 16 | 0x8001u)), bits + 1);
  }
}

// In every lane, over all exponents, both signs and ties.
TEST(FourRows, AsFloat16RoundsAsTheScalar) {
  std::mt19937 random(9);
  for (uint32_t high = 0; high < 0x7f800000u; high += 0x1000) {
    quant::FourRows x;
    for (int lane = 0; lane < 4; ++lane) {
      const uint32_t magnitude = lane == 0 ? high : (high & ~0x1fffu) | (random() & 0x1fffu);
      x[lane] = std::bit_cast<float>(magnitude | (lane % 2 == 0 ? 0u : 0x80000000u));
    }
    const quant::FourRows found = quant::AsFloat16(x);
    for (int lane = 0; lane < 4; ++lane) {
      const float expected = Float16ToFloat(FloatToFloat16(std::clamp(x[lane], -65504.0f, 65504.0f))) + 0.0f;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[lane]), std::bit_cast<uint32_t>(expected)) << std::hexfloat << x[lane];
    }
  }
}

TEST(RoundToEven, AgreesWithNearbyint) {
  for (float x = -140.0f; x <= 140.0f; x += 0.125f) EXPECT_EQ(RoundToEven(x), std::nearbyint(x)) << x;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> any(-4e6f, 4e6f);
  for (int i = 0; i < 10000; ++i) {
    const float x = any(random);
    EXPECT_EQ(RoundToEven(x), std::nearbyint(x)) << x;
  }
}

}  // namespace half_test
}  // namespace moed
