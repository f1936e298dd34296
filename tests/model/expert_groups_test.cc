#include "core/model/expert_groups.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace moed {
namespace {

TEST(ExpertGroupsTest, SlotsByExpertInTokenOrder) {
  std::mt19937_64 random(2);
  for (int tokens = 1; tokens < 20; ++tokens) {
    constexpr int kExperts = 7, kTopK = 3;
    std::vector<ExpertChoice> choices(tokens * kTopK);
    for (int t = 0; t < tokens; ++t) {  // distinct experts
      const auto first = static_cast<int32_t>(random() % kExperts);
      for (int slot = 0; slot < kTopK; ++slot) choices[t * kTopK + slot].expert = (first + 2 * slot) % kExperts;
    }
    std::vector<int32_t> begin(kExperts + 1), slots(choices.size());
    GroupByExpert(choices, begin, slots);
    EXPECT_EQ(begin.front(), 0);
    EXPECT_EQ(begin.back(), static_cast<int32_t>(choices.size()));
    for (int expert = 0; expert < kExperts; ++expert) {
      std::vector<int32_t> expected;
      for (size_t i = 0; i < choices.size(); ++i) {
        if (choices[i].expert == expert) expected.push_back(static_cast<int32_t>(i));
      }
      EXPECT_EQ(std::vector<int32_t>(slots.begin() + begin[expert], slots.begin() + begin[expert + 1]), expected);
    }
  }
}

}  // namespace
}  // namespace moed
