// The parts of the fate planner that need no model.
#include "tools/plan/fate_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tools/plan/gate_recall.h"

namespace moed {
namespace {

using testing::ElementsAre;
using testing::Key;

TEST(UnpopularShare, IsTheLargestWholePercentWithin) {
  for (const int most : {0, 1, 9, 10, 11, 25, 50, 89, 90, 99, 100}) {
    std::set<int> asked;
    const auto found = SearchUnpopularShare(.01, [&](int percent) -> absl::StatusOr<double> {
      EXPECT_TRUE(asked.insert(percent).second) << percent << " is measured twice";
      return percent <= most ? .01 : .0101;
    });
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->percent, most);
    EXPECT_EQ(found->losses.size(), asked.size() + 1);
    EXPECT_LE(asked.size(), static_cast<size_t>(kMostShares));
  }
}

TEST(UnpopularShare, StaysBelowTheFirstThatLosesTooMuch) {
  // 20 % is beyond, 30 % would be within again.
  const auto found =
      SearchUnpopularShare(.01, [](int percent) -> absl::StatusOr<double> { return percent == 20 ? .02 : percent * .0001; });
  EXPECT_EQ(found->percent, 19);
  EXPECT_THAT(found->losses, ElementsAre(Key(0), Key(10), Key(15), Key(17), Key(18), Key(19), Key(20)));
}

TEST(UnpopularShare, ErrorsOfAMeasurementEndIt) {
  int calls = 0;
  const auto found = SearchUnpopularShare(.01, [&](int) -> absl::StatusOr<double> {
    if (++calls == 3) return absl::CancelledError("interrupted");
    return 0.;
  });
  EXPECT_TRUE(absl::IsCancelled(found.status()));
  EXPECT_EQ(calls, 3);
}

TEST(ShallowLayers, EndAtTheFirstThatIsForeseenAsTheMedianIs) {
  const auto layers = [](std::vector<double> recall, double share = .95) { return ShallowLayers(recall, share); };
  EXPECT_EQ(layers({0, .5, .7, .9, .94, .98, .96}), 3);  // median .94: .893 is asked
  EXPECT_EQ(layers({0, .5, .7, .9, .94, .98, .96}, .7), 2);
  EXPECT_EQ(layers({0, .9, .9, .9}), 1);      // only the one that nobody foresees
  EXPECT_EQ(layers({0, .9, .2, .9, .9}), 1);  // a deep layer that is bad is not at the front
  EXPECT_EQ(layers({0}), 1);
  EXPECT_EQ(layers({0, 0, 0}), 1);
}

// Gates that rank by hand: what the first token's input foresees is right for one of two, the second's for both.
TEST(GateRecall, CountsByHand) {
  const LayerId layers[] = {LayerId(1), LayerId(3)};
  int asked = 0;
  GateRecall recall(ExpertIndex(layers, 8, 1), 2, [&](LayerId layer, std::span<const float> hidden, std::span<float> out) {
    ++asked;
    EXPECT_EQ(layer, layers[1]);
    const auto first = static_cast<size_t>(hidden[0]);
    for (size_t e = 0; e < out.size(); ++e) out[e] = e == first ? .5f : e == first + 1 ? .3f : .1f - .01f * static_cast<float>(e);
  });
  const auto logits = [](size_t a, size_t b) {
    std::vector<float> values(8, 0.f);
    values[a] = 3;
    values[b] = 2;
    return values;
  };
  const float zero[] = {0}, four[] = {4};
  for (int pass = 0; pass < 2; ++pass) {
    recall.Observe(layers[0], {}, zero, logits(6, 7));
    recall.Observe(layers[0], {}, four, logits(6, 7));
    recall.Observe(layers[1], {}, zero, logits(1, 5));  // foreseen: 0 and 1
    recall.Observe(layers[1], {}, zero, logits(5, 4));  // foreseen: 4 and 5
  }
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(recall.layers()[0].chosen, 0u);
  EXPECT_EQ(recall.layers()[1].chosen, 8u);
  EXPECT_EQ(recall.layers()[1].top_k, 6u);
  EXPECT_EQ(recall.layers()[1].widened, 6u);
}

// Four of 16 are above the 75th percentile where two are chosen.
TEST(GateRecall, TheWidenedSetForeseesMore) {
  const LayerId layers[] = {LayerId(0), LayerId(1)};
  GateRecall recall(ExpertIndex(layers, 16, 1), 2, [](LayerId, std::span<const float>, std::span<float> out) {
    for (size_t e = 0; e < out.size(); ++e) out[e] = 1.f / static_cast<float>(e + 1);
  });
  const float hidden[] = {1};
  std::vector<float> logits(16, 0.f);
  recall.Observe(layers[0], {}, hidden, logits);
  logits[0] = 1;
  logits[3] = 2;
  recall.Observe(layers[1], {}, hidden, logits);
  EXPECT_EQ(recall.layers()[1].chosen, 2u);
  EXPECT_EQ(recall.layers()[1].top_k, 1u);
  EXPECT_EQ(recall.layers()[1].widened, 2u);
}

}  // namespace
}  // namespace moed
