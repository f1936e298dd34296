#include "core/kernels/router.h"

#include <algorithm>
#include <cmath>
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
      ChooseExperts(probabilities, false, choices);
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
  ChooseExperts(probabilities, true, choices);
  const float sum = (0.4f + 0.3f) + 0.2f;
  EXPECT_EQ(choices[0].probability, 0.4f / sum);
  EXPECT_EQ(choices[1].probability, 0.3f / sum);
  EXPECT_EQ(choices[2].probability, 0.2f / sum);
}

TEST(RouterTest, NotANumberStillGivesDistinctExperts) {
  const std::vector<float> probabilities(5, NAN);
  std::vector<ExpertChoice> choices(3);
  ChooseExperts(probabilities, false, choices);
  for (int slot = 0; slot < 3; ++slot) EXPECT_EQ(choices[slot].expert, slot);
}

}  // namespace
}  // namespace moed
