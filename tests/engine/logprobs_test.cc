#include "core/engine/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace moed {
namespace logprobs_test {

TEST(LogprobsTest, ProbabilitiesSumToOneWhateverTheScale) {
  std::mt19937 random(3);
  for (float scale : {0.01f, 1.0f, 50.0f, 3000.0f}) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> logits(997);
    for (float& logit : logits) logit = normal(random);
    const double normalizer = LogNormalizer(logits);
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - normalizer);
    EXPECT_NEAR(sum, 1, 1e-9) << scale;
  }
}

TEST(LogprobsTest, KnownValues) {
  const std::vector<float> logits{0, 0, 0, 0};
  EXPECT_DOUBLE_EQ(LogNormalizer(logits), std::log(4.0));
  EXPECT_DOUBLE_EQ(LogNormalizer(std::vector<float>{1000}), 1000);
}

TEST(LogprobsTest, WhatIsNotANumberShows) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(LogNormalizer(std::vector<float>{0, std::nanf("")})));
  EXPECT_FALSE(std::isfinite(LogNormalizer(std::vector<float>{std::nanf(""), 0})));
  EXPECT_FALSE(std::isfinite(LogNormalizer(std::vector<float>{0, infinity})));
}

TEST(LogprobsTest, TopAgreesWithAFullSort) {
  std::mt19937 random(5);
  for (int size : {1, 5, 20, 1000}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = static_cast<float>(random() % 50);  // many equals
    const double normalizer = LogNormalizer(logits);
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    for (int count : {0, 1, 7, 20}) {
      const auto top = TopLogprobs(logits, normalizer, count);
      ASSERT_EQ(top.size(), static_cast<size_t>(std::min(count, size)));
      for (size_t i = 0; i < top.size(); ++i) {
        EXPECT_EQ(top[i].first.value(), order[i]);
        EXPECT_FLOAT_EQ(top[i].second, static_cast<float>(logits[order[i]] - normalizer));
      }
    }
  }
}

}  // namespace logprobs_test
}  // namespace moed
