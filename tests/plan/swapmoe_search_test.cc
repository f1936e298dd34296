// The parts of the slots planner that need no model: accuracy model, rank correlation, genetic search, the mask it measures with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tools/plan/swapmoe_genetic.h"
#include "tools/plan/swapmoe_mask.h"

namespace moed {
namespace {

using testing::ElementsAre;

// Losses add up over the layers, and each further slot is worth less.
double Loss(const SlotCounts& slots, std::span<const double> weights) {
  double loss = 2;
  for (size_t layer = 0; layer < slots.size(); ++layer) loss += weights[layer] / slots[layer];
  return loss;
}

// All allocations of exactly `total` slots.
SlotCounts BestByEnumeration(int layers, int experts, int total, std::span<const double> weights) {
  SlotCounts slots(static_cast<size_t>(layers), 1), best;
  for (;;) {
    const bool fits = std::accumulate(slots.begin(), slots.end(), 0) <= total;
    if (fits && (best.empty() || Loss(slots, weights) < Loss(best, weights))) best = slots;
    size_t layer = 0;
    while (layer < slots.size() && slots[layer] == experts) slots[layer++] = 1;
    if (layer == slots.size()) return best;
    ++slots[layer];
  }
}

TEST(GeneticSearch, FindsTheOptimumThatEnumerationFinds) {
  const double weights[] = {.1, 3, 1, .4, 2};
  for (const int budget : {5, 9, 17, 30, 40}) {
    const SlotsQuestion question{5, 8, budget};
    const GeneticOptions options{.generations = 400};
    EXPECT_EQ(SearchSlots(question, options, [&](const SlotCounts& slots) { return Loss(slots, weights); }),
              BestByEnumeration(5, 8, budget, weights))
        << budget;
  }
}

TEST(GeneticSearch, IsDecidedByItsSeedAndStaysWithinTheBudget) {
  const SlotsQuestion question{6, 16, 40};
  // Rugged, so that few generations end in different places.
  const auto cost = [](const SlotCounts& slots) {
    double sum = 0;
    for (size_t l = 0; l < slots.size(); ++l) sum += std::sin(slots[l] * 1.7 + static_cast<double>(l)) - .01 * slots[l];
    return sum;
  };
  std::vector<SlotCounts> found;
  for (const uint64_t seed : {1, 1, 2, 3, 4}) {
    found.push_back(SearchSlots(question, {.generations = 2, .seed = seed}, cost));
    EXPECT_LE(std::accumulate(found.back().begin(), found.back().end(), 0), 40);
    for (const int slots : found.back()) EXPECT_TRUE(slots >= 1 && slots <= 16);
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_TRUE(found[0] != found[2] || found[0] != found[3] || found[0] != found[4]);
}

TEST(GeneticSearch, RandomSlotsSumToWhatIsAsked) {
  SwapMoeRandom random(5);
  const SlotsQuestion question{4, 6, 24};
  for (int total = 4; total <= 24; ++total) {
    const SlotCounts slots = RandomSlots(question, total, total % 3 / 2., random);
    EXPECT_EQ(std::accumulate(slots.begin(), slots.end(), 0), total);
    for (const int here : slots) EXPECT_TRUE(here >= 1 && here <= 6);
  }
}

TEST(AccuracyModel, OrdersAllocationsItHasNotSeen) {
  const double weights[] = {.1, 3, 1, .4, 2, .2};
  const SlotsQuestion question{6, 16, 60};
  SwapMoeRandom random(9);
  std::vector<MeasuredSlots> samples;
  std::vector<double> predicted, true_ones;
  for (int i = 0; i < 64; ++i) {
    const SlotCounts slots = RandomSlots(question, 30 + random.Below(31), 0, random);
    samples.push_back({slots, Loss(slots, weights)});
  }
  const AccuracyModel model(samples, 16, {.steps = 1000});
  for (int i = 0; i < 40; ++i) {
    const SlotCounts slots = RandomSlots(question, 30 + random.Below(31), 0, random);
    predicted.push_back(model.Predict(slots));
    true_ones.push_back(Loss(slots, weights));
  }
  EXPECT_GT(RankCorrelation(predicted, true_ones), .9);
  const AccuracyModel again(samples, 16, {.steps = 1000});
  EXPECT_EQ(again.Predict({1, 2, 3, 4, 5, 6}), model.Predict({1, 2, 3, 4, 5, 6}));
}

TEST(AccuracyModel, OneSampleIsPredictedAsItIs) {
  const MeasuredSlots one[] = {{{2, 3}, 4.5}};
  EXPECT_NEAR(AccuracyModel(one, 8, {.steps = 500}).Predict({2, 3}), 4.5, .1);
  EXPECT_TRUE(std::isfinite(AccuracyModel(one, 1, {.steps = 5}).Predict({1, 1})));
}

TEST(RankCorrelation, ByHand) {
  EXPECT_DOUBLE_EQ(RankCorrelation(std::vector{1., 2., 3.}, std::vector{10., 20., 400.}), 1);
  EXPECT_DOUBLE_EQ(RankCorrelation(std::vector{1., 2., 3.}, std::vector{3., 2., 1.}), -1);
  EXPECT_DOUBLE_EQ(RankCorrelation(std::vector{1., 2., 3.}, std::vector{1., 3., 2.}), .5);
  // Ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3: covariance 4.5, squares 4.5 and 5.
  EXPECT_DOUBLE_EQ(RankCorrelation(std::vector{1., 2., 2., 3.}, std::vector{1., 2., 3., 4.}), 4.5 / std::sqrt(4.5 * 5));
  EXPECT_EQ(RankCorrelation(std::vector{1., 1.}, std::vector{1., 2.}), 0);
  EXPECT_EQ(RankCorrelation({}, {}), 0);
}

class NoResidents final : public ResidencyView {
 public:
  bool Resident(CachedKey) const override { return false; }
  bool Loading(CachedKey) const override { return false; }
};

TEST(SwapMoePlanMask, FollowsTheTokensBefore) {
  const LayerId layers[] = {LayerId(1), LayerId(3)};
  SwapMoePlanMask mask(ExpertIndex(layers, 4, 1), 1, {1, 4}, {1, 1, 2, 1, 1, 1, 1, 1}, 2, 0);
  const NoResidents residents;
  const float hidden[] = {1};
  const auto left = [&](LayerId layer, int favourite) {
    std::vector<float> logits(4);
    logits[static_cast<size_t>(favourite)] = 9;
    mask.Observe(layer, {}, hidden, logits);
    mask.Apply(layer, {}, residents, logits);
    std::vector<int> experts;
    for (int e = 0; e < 4; ++e) {
      if (std::isfinite(logits[static_cast<size_t>(e)])) experts.push_back(e);
    }
    return experts;
  };
  EXPECT_THAT(left(layers[0], 3), ElementsAre(2));  // of the largest norm
  EXPECT_THAT(left(layers[0], 3), ElementsAre(2));
  EXPECT_THAT(left(layers[0], 0), ElementsAre(3));  // what the two tokens before wanted, not this one
  EXPECT_THAT(left(layers[0], 0), ElementsAre(3));
  EXPECT_THAT(left(layers[0], 1), ElementsAre(0));
  EXPECT_THAT(left(layers[1], 1), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace moed
