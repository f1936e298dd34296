#include "core/kernels/router.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace moed {
namespace {

// Few distinct values, so that ties are common.
std::vector<float> RandomProbabilities(std::mt19937_64& random, int experts) {
  std::vector<float> probabilities(experts);
  for (float& p : probabilities) p = static_cast<float>(1 + random() % 6) / 16;
  return probabilities;
}

TEST(RouterTest, ChoosesLikeAStableSort) {
  std::mt19937_64 random(1);
  for (int experts = 1; experts <= 40; ++experts) {
    for (int top_k = 1; top_k <= std::min(experts, 9); ++top_k) {
      const std::vector<float> probabilities = RandomProbabilities(random, experts);
      std::vector<int32_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return probabilities[a] > probabilities[b]; });
      std::vector<ExpertChoice> choices(top_k);
      ChooseExperts({.experts = experts, .top_k = top_k}, probabilities, choices);
      for (int slot = 0; slot < top_k; ++slot) {
        EXPECT_EQ(choices[slot].expert, order[slot]);
        EXPECT_EQ(choices[slot].probability, probabilities[order[slot]]);
      }
    }
  }
}

TEST(RouterTest, NormalizesBySumInSlotOrder) {
  const std::vector<float> probabilities = {0.1f, 0.4f, 0.2f, 0.3f};
  std::vector<ExpertChoice> choices(3);
  ChooseExperts({.experts = 4, .top_k = 3, .normalize = true}, probabilities, choices);
  const float sum = (0.4f + 0.3f) + 0.2f;
  EXPECT_EQ(choices[0].probability, 0.4f / sum);
  EXPECT_EQ(choices[1].probability, 0.3f / sum);
  EXPECT_EQ(choices[2].probability, 0.2f / sum);
}

TEST(RouterTest, NotANumberStillGivesDistinctExperts) {
  const std::vector<float> probabilities(5, NAN);
  std::vector<ExpertChoice> choices(3);
  ChooseExperts({.experts = 5, .top_k = 3}, probabilities, choices);
  for (int slot = 0; slot < 3; ++slot) EXPECT_EQ(choices[slot].expert, slot);
}

// What the shape says, done with sorted lists of all experts.
struct Slow {
  const RouterShape& shape;
  const std::vector<float>& scores;

  float Key(int expert) const { return scores[expert] + shape.correction[expert]; }
  std::vector<int> Sorted(std::vector<int> experts) const {
    std::stable_sort(experts.begin(), experts.end(), [&](int a, int b) { return Key(a) > Key(b); });
    return experts;
  }
  std::vector<int> Group(int group) const {
    std::vector<int> experts(shape.experts / shape.groups);
    std::iota(experts.begin(), experts.end(), group * static_cast<int>(experts.size()));
    return experts;
  }
  float GroupKey(int group) const {
    const std::vector<int> best = Sorted(Group(group));
    return shape.group_rank == GroupRank::kTwoLargestKeys && best.size() > 1 ? Key(best[0]) + Key(best[1]) : Key(best[0]);
  }
  std::vector<int> Chosen() const {
    std::vector<int> groups(shape.groups);
    std::iota(groups.begin(), groups.end(), 0);
    std::stable_sort(groups.begin(), groups.end(), [&](int a, int b) { return GroupKey(a) > GroupKey(b); });
    groups.resize(shape.kept_groups);
    std::sort(groups.begin(), groups.end());
    std::vector<int> experts;
    for (const int group : groups) std::ranges::copy(Group(group), std::back_inserter(experts));
    experts = Sorted(experts);
    experts.resize(shape.top_k);
    std::stable_sort(experts.begin(), experts.end(), [&](int a, int b) { return scores[a] > scores[b]; });
    return experts;
  }
};

TEST(RouterTest, CorrectionAndGroupsActOnTheChoiceAlone) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 300; ++round) {
    const int groups = 1 + static_cast<int>(random() % 6), size = 1 + static_cast<int>(random() % 5);
    const int kept = 1 + static_cast<int>(random() % groups);
    std::vector<float> correction(groups * size), scores(groups * size);
    for (float& number : correction) number = normal(random);
    for (float& score : scores) score = 1 / (1 + std::exp(-normal(random)));
    RouterShape shape = {.experts = groups * size,
                         .top_k = 1 + static_cast<int>(random() % (kept * size)),
                         .scoring = RouterScoring::kSigmoid,
                         .correction = correction.data(),
                         .groups = groups,
                         .kept_groups = kept,
                         .group_rank = round % 2 == 0 ? GroupRank::kLargestKey : GroupRank::kTwoLargestKeys};
    std::vector<ExpertChoice> choices(shape.top_k);
    ChooseExperts(shape, scores, choices);
    const std::vector<int> expected = Slow{shape, scores}.Chosen();
    for (int slot = 0; slot < shape.top_k; ++slot) {
      EXPECT_EQ(choices[slot].expert, expected[slot]) << round;
      EXPECT_EQ(choices[slot].probability, scores[expected[slot]]);
    }
    // The same order, and 0 to 1, for those who look ahead: the chosen ones are the best.
    std::vector<float> ranks = scores;
    RankExperts(shape, ranks);
    std::vector<float> sorted = ranks;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (const ExpertChoice& choice : choices) EXPECT_GE(ranks[choice.expert], sorted[shape.top_k - 1]);
    EXPECT_LE(sorted.front(), 1);
    EXPECT_GE(sorted.back(), 0);
  }
}

TEST(RouterTest, EpsilonIsAddedToTheSum) {
  std::vector<ExpertChoice> choices(1);
  ChooseExperts({.experts = 2, .top_k = 1, .normalize = true, .epsilon = 0.25f}, std::vector<float>{0.5f, 0.75f}, choices);
  EXPECT_EQ(choices[0].probability, 0.75f);
}

// However high its correction is.
TEST(RouterTest, AMaskedExpertIsTakenWhenNoOtherIsLeft) {
  const std::vector<float> correction = {9, 0, 8, 0};
  std::vector<float> scores = {-INFINITY, 1, -INFINITY, 2};
  RouterShape shape = {.experts = 4, .top_k = 3, .scoring = RouterScoring::kSigmoid, .correction = correction.data()};
  ScoreExperts(shape, scores);
  std::vector<ExpertChoice> choices(3);
  ChooseExperts(shape, scores, choices);
  EXPECT_EQ(choices[0].expert, 3);
  EXPECT_EQ(choices[1].expert, 1);
  EXPECT_EQ(choices[2].expert, 0);
  EXPECT_EQ(choices[2].probability, 0);
}

// Two experts within the jitter of each other share the first weight; the second has its own near ties.
TEST(RouterTest, SparsemixerSharesAmongNearTies) {
  RouterShape shape = {.experts = 4, .top_k = 2, .scoring = RouterScoring::kSparsemixer, .jitter = 0.01f};
  std::vector<ExpertChoice> choices(2);
  const std::vector<float> far = {1, 4, -2, 3};
  ChooseExperts(shape, far, choices);
  EXPECT_EQ(choices[0].expert, 1);
  EXPECT_EQ(choices[0].probability, 1);
  EXPECT_EQ(choices[1].expert, 3);
  EXPECT_EQ(choices[1].probability, 1);
  const std::vector<float> near = {1, 4, -2, 3.95f};
  ChooseExperts(shape, near, choices);
  EXPECT_EQ(choices[0].expert, 3) << "highest weight first";
  EXPECT_EQ(choices[0].probability, 1);
  EXPECT_EQ(choices[1].expert, 1);
  EXPECT_NEAR(choices[1].probability, 1 / (1 + std::exp(-0.05)), 1e-6);
  const std::vector<float> masked = {-INFINITY, 4, -INFINITY, -INFINITY};
  ChooseExperts(shape, masked, choices);
  EXPECT_EQ(choices[0].expert, 1);
  EXPECT_EQ(choices[1].probability, 0);
}

// Sigmoids that are the same number do not hide which logit is larger.
TEST(RouterTest, LogitsChooseWhereTheirSigmoidsAreTheWeights) {
  RouterShape shape = {.experts = 4, .top_k = 2, .scoring = RouterScoring::kSigmoidOfChosen};
  std::vector<ExpertChoice> choices(2);
  const std::vector<float> logits = {30, 40, -200, 0.5f};
  ChooseExperts(shape, logits, choices);
  EXPECT_EQ(choices[0].expert, 1);
  EXPECT_EQ(choices[1].expert, 0);
  EXPECT_EQ(choices[0].probability, 1);
  const std::vector<float> masked = {-INFINITY, -INFINITY, -1, -INFINITY};
  ChooseExperts(shape, masked, choices);
  EXPECT_EQ(choices[0].expert, 2);
  EXPECT_NEAR(choices[0].probability, 1 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_EQ(choices[1].probability, 0);
  shape.normalize = true;
  ChooseExperts(shape, std::vector<float>{1, -1, -5, -5}, choices);
  EXPECT_NEAR(choices[0].probability + choices[1].probability, 1, 1e-6);
}

}  // namespace
}  // namespace moed
