#include "core/expert/learning/log_odds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/expert/learning/dot_product.h"

namespace moed {
namespace log_odds_test {

TEST(LogOdds, ElementaryFunctionsAreNearTheTrueOnes) {
  for (double x = 1e-30; x < 1e30; x *= 1.01) {
    const double log = std::log(static_cast<double>(static_cast<float>(x)));
    EXPECT_NEAR(FastLog(static_cast<float>(x)), log, 1e-6 * (1 + std::fabs(log))) << x;
  }
  for (float x = -80; x <= 80; x += 0.037f) EXPECT_NEAR(FastExp(x) / std::exp(static_cast<double>(x)), 1, 1e-5) << x;
}

TEST(LogOdds, StayFiniteWhateverComes) {
  for (const float x : {-1e30f, -1000.f, 1000.f, 1e30f}) {
    EXPECT_TRUE(std::isfinite(FastExp(x)) && FastExp(x) > 0) << x;
    EXPECT_NEAR(Logistic(x), x < 0 ? 0 : 1, 1e-6) << x;
  }
  EXPECT_FLOAT_EQ(LogOdds(0, .25f), LogOdds(.25f, .25f));
  EXPECT_NEAR(LogOdds(1, .25f), -LogOdds(.25f, .25f), 1e-5);
}

TEST(LogOdds, AndProbabilityAreInverse) {
  for (float p = 0.001f; p < 0.999f; p += 0.001f) EXPECT_NEAR(Logistic(LogOdds(p, 1e-4f)), p, 1e-5);
}

TEST(DotProduct, AddsUpAnyNumber) {
  for (size_t size = 0; size < 70; ++size) {
    std::vector<float> a(size), b(size);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      a[i] = static_cast<float>(i % 7) - 3;
      b[i] = static_cast<float>(i % 5) + 1;
      sum += a[i] * b[i];
    }
    EXPECT_EQ(DotProduct(a, b), sum) << size;  // small whole numbers
  }
}

}  // namespace log_odds_test
}  // namespace moed
