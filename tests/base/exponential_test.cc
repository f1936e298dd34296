#include "core/base/exponential.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"

namespace moed {
namespace {

TEST(Exponential, WithinOneUlp) {
  double worst = 0;
  for (float x = -87.0f; x <= 88.0f; x += 0.00037f) {
    const double truth = std::exp(double{x});
    const float nearest = static_cast<float>(truth);
    const double unit = double{std::nextafter(nearest, INFINITY)} - nearest;
    worst = std::max(worst, std::fabs(Exponential(x) - truth) / unit);
  }
  EXPECT_LE(worst, 0.6);
}

TEST(Exponential, NeverDecreases) {
  for (float x = -87.0f; x < 88.0f; x += 0.0003f) EXPECT_GE(Exponential(x + 0.0003f), Exponential(x)) << x;
}

// The second and third are where the nearest float is the other neighbour, which a library may give.
TEST(Exponential, TheSameBitsEverywhere) {
  EXPECT_EQ(Exponential(0.0f), 1.0f);
  EXPECT_EQ(Exponential(-0x1.000016p+0f), 0x1.78b542p-2f);
  EXPECT_EQ(Exponential(-0x1.00028ep+0f), 0x1.78b1a0p-2f);
  EXPECT_EQ(Exponential(-2.5f), 0x1.50385cp-4f);
  EXPECT_EQ(Exponential(-49.9f), 0x1.01b1acp-72f);
  EXPECT_EQ(Exponential(-86.9f), 0x1.8c1f12p-126f);
  EXPECT_EQ(Exponential(87.9f), 0x1.c1b95cp+126f);
}

}  // namespace
}  // namespace moed
