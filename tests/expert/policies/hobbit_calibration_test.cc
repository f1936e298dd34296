#include "core/expert/policies/hobbit_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/status.h"

namespace moed {
namespace hobbit_calibration_test {

using testing::DoubleNear;

constexpr LayerId kLayers[] = {LayerId(0), LayerId(1)};
constexpr uint64_t kRecordBytes[] = {40, 10};
constexpr HobbitWeights kEqual{0.25, 0.25, 0.25, 0.25};

ExpertModelShape Model(uint64_t capacity_bytes) { return {kLayers, 8, 2, 2, kRecordBytes, capacity_bytes}; }

HobbitRouting Tokens(int count, const std::function<std::vector<int32_t>(int token, int layer)>& experts,
                     std::vector<float> weights = {.6f, .4f}) {
  HobbitRouting routing{2, 2};
  for (int token = 0; token < count; ++token) {
    for (int layer = 0; layer < 2; ++layer) AddScored(experts(token, layer), weights, routing);
  }
  routing.sequence_ends = {routing.tokens()};
  return routing;
}

TEST(HobbitCalibration, ScoresAreTheMassOfBetterChoices) {
  HobbitRouting routing{1, 3};
  AddScored(std::vector<int32_t>{4, 2, 7}, std::vector<float>{.4f, .3f, .1f}, routing);
  ASSERT_EQ(routing.tokens(), 1u);
  EXPECT_EQ(routing.choices[2].expert, 7);
  EXPECT_FLOAT_EQ(routing.choices[0].before, 0);
  EXPECT_FLOAT_EQ(routing.choices[1].before, .5f);
  EXPECT_FLOAT_EQ(routing.choices[2].before, .875f);
}

// 3.2: thresholds come from the distribution of the scores.
TEST(HobbitCalibration, ThresholdsSplitTheScores) {
  HobbitRouting routing{1, 2};
  for (int i = 0; i < 100; ++i) {
    const float first = .5f + static_cast<float>(i) / 200;
    AddScored(std::vector<int32_t>{0, 1}, std::vector<float>{first, 1 - first}, routing);
  }
  // Half of the scores are 0, the others .5, .505, ... .995.
  const HobbitSplit wanted{.high = .67, .low = .30};
  const HobbitThresholds thresholds = ThresholdsOfSplit(routing, wanted);
  EXPECT_THAT(thresholds.high, DoubleNear(.5 + 33 / 200., 1e-5));
  EXPECT_THAT(thresholds.low, DoubleNear(.5 + 93 / 200., 1e-5));
  const HobbitSplit split = SplitOfThresholds(routing, thresholds);
  EXPECT_NEAR(split.high, .67, 1e-9);
  EXPECT_NEAR(split.low, .30, 1e-9);
  const HobbitSplit all = SplitOfThresholds(routing, ThresholdsOfSplit(routing, {.high = 1, .low = 0}));
  EXPECT_EQ(all.high, 1);
}

// 3.4: a miss costs 1 at the high precision, B_low / B_high at the low one.
TEST(HobbitCalibration, AMissCostsItsBytes) {
  const auto always_other = [](int token, int layer) {
    return std::vector<int32_t>{(2 * token + layer) % 8, (2 * token + layer + 1) % 8};
  };
  // Room for two of the sixteen: nothing is ever met again. The first choice is high, the second (score .6) as the thresholds
  // say.
  const auto penalty = [&](const HobbitThresholds& thresholds) {
    return HobbitMissPenalty(Tokens(40, always_other), Model(80), thresholds, {{1, 0, 0, 0}});
  };
  EXPECT_DOUBLE_EQ(penalty({.high = 1, .low = 1}), 1);
  EXPECT_DOUBLE_EQ(penalty({.high = .5, .low = 1}), (1 + .25) / 2);
  EXPECT_DOUBLE_EQ(penalty({.high = .5, .low = .5}), .5) << "skipped costs nothing";
}

TEST(HobbitCalibration, WhatIsThereCostsNothing) {
  const auto same = [](int, int layer) { return std::vector<int32_t>{layer, layer + 1}; };
  EXPECT_DOUBLE_EQ(HobbitMissPenalty(Tokens(50, same), Model(16 * 40), {.high = 1, .low = 1}, {kEqual}), 4 / 200.);
}

TEST(HobbitCalibration, TheSearchFindsWhatCostsLeast) {
  const auto found = SearchHobbitTuning([](const HobbitTuning& at) -> absl::StatusOr<double> {
    const double lru = at.weights.lru - .35, lfu = at.weights.lfu - .1, lhu = at.weights.lhu - .4, high = at.high_cache - .7;
    return lru * lru + lfu * lfu + lhu * lhu + high * high;
  });
  ASSERT_TRUE(found.ok());
  const HobbitWeights& weights = found->tuning.weights;
  EXPECT_NEAR(weights.lru, .35, 1e-9);
  EXPECT_NEAR(weights.lfu, .1, 1e-9);
  EXPECT_NEAR(weights.lhu, .4, 1e-9);
  EXPECT_NEAR(weights.fld, .15, 1e-9);
  EXPECT_NEAR(found->tuning.high_cache, .7, 1e-9);
  const auto ended = SearchHobbitTuning([](const HobbitTuning&) -> absl::StatusOr<double> { return absl::CancelledError("x"); });
  EXPECT_TRUE(absl::IsCancelled(ended.status()));
}

// Two experts come back all the time, the others never: frequency keeps them where recency alone does not.
TEST(HobbitCalibration, WeightsMatter) {
  std::mt19937 random(5);
  const HobbitRouting routing = Tokens(400, [&](int token, int) {
    return token % 3 == 0 ? std::vector<int32_t>{0, 1}
                          : std::vector<int32_t>{2 + static_cast<int32_t>(random() % 3), 5 + static_cast<int32_t>(random() % 3)};
  });
  const auto penalty = [&](const HobbitWeights& weights) {
    return HobbitMissPenalty(routing, Model(8 * 40), {.high = 1, .low = 1}, {weights});
  };
  EXPECT_LT(penalty({0, 1, 0, 0}), penalty({1, 0, 0, 0}) * .95);
}

}  // namespace hobbit_calibration_test
}  // namespace moed
