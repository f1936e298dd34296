#include "core/quant/half.h"

#include <cmath>
#include <limits>
#include <random>

#include "core/quant/rounding.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

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

TEST(RoundToEven, AgreesWithNearbyint) {
  for (float x = -140.0f; x <= 140.0f; x += 0.125f) EXPECT_EQ(RoundToEven(x), std::nearbyint(x)) << x;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> any(-4e6f, 4e6f);
  for (int i = 0; i < 10000; ++i) {
    const float x = any(random);
    EXPECT_EQ(RoundToEven(x), std::nearbyint(x)) << x;
  }
}

}  // namespace
}  // namespace moed
