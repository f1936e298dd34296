#include "core/kernels/math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace moed {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Distance from the true value in units of the float's last place.
double Ulps(float found, double truth) {
  const float nearest = static_cast<float>(truth);
  const double unit = double{std::nextafter(std::fabs(nearest), kInfinity)} - std::fabs(nearest);
  return std::fabs(found - truth) / unit;
}

TEST(Exp, WithinOneUlp) {
  double worst = 0;
  for (float x = -87.0f; x < 88.7f; x += 0.00037f) worst = std::max(worst, Ulps(Exp(x), std::exp(double{x})));
  EXPECT_LE(worst, 1.0);
}

TEST(Exp, UnderflowsGradually) {
  for (float x = -104.0f; x < -87.0f; x += 0.0011f) EXPECT_LE(Ulps(Exp(x), std::exp(double{x})), 1.0) << x;
}

TEST(Exp, Borders) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(88.8f), kInfinity);
  EXPECT_EQ(Exp(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(-104.5f), 0.0f);
  EXPECT_EQ(Exp(std::numeric_limits<float>::denorm_min()), 1.0f);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exp, NeverDecreases) {
  float last = 0;
  for (float x = -105.0f; x < 89.0f; x += 0.003f) {
    EXPECT_GE(Exp(x), last) << x;
    last = Exp(x);
  }
}

TEST(Sigmoid, AgreesWithLibm) {
  for (float x = -80.0f; x < 80.0f; x += 0.013f) {
    const double truth = 1 / (1 + std::exp(-double{x}));
    EXPECT_LE(Ulps(Sigmoid(x), truth), 3.0) << x;
    EXPECT_LE(Ulps(Silu(x), x * truth), 3.0) << x;
  }
  EXPECT_EQ(Sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(Sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(Silu(0.0f), 0.0f);
  EXPECT_EQ(Silu(-200.0f), -0.0f);
}

TEST(Softplus, AgreesWithLibm) {
  double worst = 0;
  for (float x = -80.0f; x < 80.0f; x += 0.0031f) worst = std::max(worst, Ulps(Softplus(x), std::log1p(std::exp(double{x}))));
  EXPECT_LE(worst, 1.5);
  EXPECT_EQ(Softplus(kInfinity), kInfinity);
  EXPECT_EQ(Softplus(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(Softplus(std::numeric_limits<float>::quiet_NaN())));
}

TEST(SineCosine, WithinOneUlpUpToAMillion) {
  std::mt19937 random(3);
  double worst = 0;
  for (float limit : {1e-6f, 0.8f, 7.0f, 1000.0f, 1e6f}) {
    std::uniform_real_distribution<float> any(-limit, limit);
    for (int i = 0; i < 40000; ++i) {
      const float angle = any(random);
      const SinCos found = SineCosine(angle);
      worst = std::max({worst, Ulps(found.sin, std::sin(double{angle})), Ulps(found.cos, std::cos(double{angle}))});
    }
  }
  // 0.5 is the rounding of a perfect result.
  EXPECT_LE(worst, 0.501);
}

TEST(SineCosine, WholePositions) {
  for (int position = 0; position < 200000; ++position) {
    const float angle = static_cast<float>(position);
    const SinCos found = SineCosine(angle);
    ASSERT_LE(Ulps(found.sin, std::sin(double{angle})), 0.501) << position;
    ASSERT_LE(Ulps(found.cos, std::cos(double{angle})), 0.501) << position;
  }
  EXPECT_EQ(SineCosine(0.0f).sin, 0.0f);
  EXPECT_EQ(SineCosine(0.0f).cos, 1.0f);
}

}  // namespace
}  // namespace moed
