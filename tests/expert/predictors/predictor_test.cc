#include "core/expert/cache/prefetch_plan.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace predictor_test {

using testing::ElementsAre;

struct SeenGate {
  LayerId layer;
  std::vector<float> hidden;
};

std::vector<int32_t> ExpertsOf(const std::vector<Guess>& guesses) {
  std::vector<int32_t> experts;
  for (const Guess& guess : guesses) experts.push_back(guess.key.expert);
  return experts;
}

TEST(NoPredictor, GuessesNothing) {
  auto predictor = MakePredictor("none", {}).value();
  predictor->OnSequenceStart(kSession);
  std::vector<Guess> guesses;
  predictor->Predict(kSession, LayerId(0), guesses);
  EXPECT_TRUE(guesses.empty());
}

TEST(CrossLayerGate, AsksTheNextGateWithThisLayersInput) {
  std::vector<SeenGate> seen;
  const GateFn gate = [&](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    seen.push_back({layer, {hidden.begin(), hidden.end()}});
    const float given[kExperts] = {.05f, .3f, .01f, .02f, .4f, .1f, .07f, .05f};
    std::copy(std::begin(given), std::end(given), probabilities.begin());
  };
  auto predictor = MakePredictor("cross-layer-gate", {StoreContext(), 2, gate}).value();
  predictor->OnSequenceStart(kSession);
  const std::vector<float> hidden = {1.5f, -2};
  predictor->OnGateInput(kSession, LayerId(0), hidden);
  EXPECT_TRUE(seen.empty());  // the demands go first
  std::vector<Guess> guesses;
  predictor->Predict(kSession, LayerId(0), guesses);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].layer, LayerId(2));  // the next MoE layer; 1 is dense
  EXPECT_EQ(seen[0].hidden, hidden);
  // Sorted: .01 .02 .05 .05 .07 .1 .3 .4; the 75th percentile lies a quarter of the way from .1 to .3.
  EXPECT_THAT(ExpertsOf(guesses), ElementsAre(4, 1));
  EXPECT_EQ(guesses[0].key.layer, LayerId(2));
  EXPECT_FLOAT_EQ(guesses[0].probability, .4f);
  EXPECT_EQ(guesses[0].layer_distance, 1);
}

TEST(CrossLayerGate, SaysNothingAfterTheLastLayerOrWithoutAnInput) {
  int calls = 0;
  auto predictor = MakePredictor("cross-layer-gate", {StoreContext(), 1,
                                                      [&](LayerId, std::span<const float>, std::span<float> p) {
                                                        ++calls;
                                                        std::fill(p.begin(), p.end(), .125f);
                                                      }})
                       .value();
  predictor->OnSequenceStart(kSession);
  const float hidden = 1;
  std::vector<Guess> guesses;
  predictor->Predict(kSession, LayerId(0), guesses);  // nothing seen
  predictor->OnGateInput(kSession, LayerId(0), {&hidden, 1});
  predictor->Predict(kSession, LayerId(2), guesses);        // seen at another layer
  predictor->Predict(SequenceId(99), LayerId(0), guesses);  // another sequence
  predictor->OnGateInput(kSession, LayerId(3), {&hidden, 1});
  predictor->Predict(kSession, LayerId(3), guesses);  // no layer follows
  EXPECT_EQ(calls, 0);
  predictor->OnGateInput(kSession, LayerId(2), {&hidden, 1});
  predictor->Predict(kSession, LayerId(2), guesses);  // a flat gate prefers nobody
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(guesses.empty());
}

TEST(CrossLayerGate, KeepsOneInputPerLiveSequence) {
  const GateFn gate = [](LayerId, std::span<const float> hidden, std::span<float> probabilities) {
    std::fill(probabilities.begin(), probabilities.end(), 0.f);
    probabilities[static_cast<int>(hidden[0])] = 1;
  };
  auto predictor = MakePredictor("cross-layer-gate", {StoreContext(), 1, gate}).value();
  const size_t without = predictor->memory_bytes();
  const SequenceId sessions[] = {SequenceId(1), SequenceId(2)};
  for (const SequenceId sequence : sessions) predictor->OnSequenceStart(sequence);
  EXPECT_GT(predictor->memory_bytes(), without);
  for (const SequenceId sequence : sessions) {
    const float hidden = static_cast<float>(sequence.value() + 3);
    predictor->OnGateInput(sequence, LayerId(0), {&hidden, 1});
  }
  std::vector<Guess> guesses;
  for (const SequenceId sequence : sessions) predictor->Predict(sequence, LayerId(0), guesses);
  EXPECT_THAT(ExpertsOf(guesses), ElementsAre(4, 5));
  for (const SequenceId sequence : sessions) predictor->OnSequenceEnd(sequence);
  EXPECT_EQ(predictor->memory_bytes(), without);
}

class FixedView final : public ResidencyView {
 public:
  FixedView(std::vector<int32_t> resident, std::vector<int32_t> loading)
      : resident_(std::move(resident)), loading_(std::move(loading)) {}
  bool Resident(CachedKey key) const override { return std::ranges::count(resident_, key.expert) > 0; }
  bool Loading(CachedKey key) const override { return std::ranges::count(loading_, key.expert) > 0; }

 private:
  std::vector<int32_t> resident_, loading_;
};

TEST(PlanPrefetch, TakesTheBestOfWhatIsAbsent) {
  const auto guess = [](int32_t expert, float p) { return Guess{{LayerId(2), expert}, p}; };
  const std::vector<Guess> guesses = {guess(0, .9f),  guess(1, .8f), guess(2, .7f), guess(0, .9f),
                                      guess(3, .05f), guess(4, .6f), guess(5, .5f)};
  const FixedView view({1}, {4});
  const auto plan = [&](int loads, float least) {
    std::vector<int32_t> experts;
    for (const CachedKey& key : PlanPrefetch(view, guesses, {loads, least})) {
      EXPECT_EQ(key.layer, LayerId(2));
      EXPECT_EQ(key.precision, kReferencePrecision);
      experts.push_back(key.expert);
    }
    return experts;
  };
  EXPECT_THAT(plan(10, .1f), ElementsAre(0, 2, 5));
  EXPECT_THAT(plan(10, 0), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(plan(2, .1f), ElementsAre(0, 2));
  EXPECT_THAT(plan(0, .1f), ElementsAre());
}

// Experts of one layer each, so that the view can tell them apart: 1x in layer 2, 2x in layer 3, ...
TEST(PlanPrefetch, TheNearestLayerThatLacksAGuess) {
  const std::vector<Guess> guesses = {{{LayerId(2), 1}, .9f, 1}, {{LayerId(3), 2}, .9f, 2}, {{LayerId(3), 3}, .05f, 2},
                                      {{LayerId(3), 4}, .8f, 2}, {{LayerId(4), 5}, .9f, 3}, {{LayerId(2), 6}, .05f, 1}};
  const auto plan = [&](std::vector<int32_t> resident, std::vector<int32_t> loading) {
    std::vector<int32_t> experts;
    const PrefetchBudget budget{.max_loads = 10, .min_probability = .1f, .first_missing_layer_only = true};
    for (const CachedKey& key : PlanPrefetch(FixedView(resident, loading), guesses, budget)) experts.push_back(key.expert);
    return experts;
  };
  EXPECT_THAT(plan({}, {}), ElementsAre(1));
  EXPECT_THAT(plan({1}, {}), ElementsAre(2, 4));
  EXPECT_THAT(plan({4}, {1}), ElementsAre(2));  // what is on its way needs nothing
  EXPECT_THAT(plan({1, 2, 4}, {}), ElementsAre(5));
  EXPECT_THAT(plan({1, 2, 4, 5}, {}), ElementsAre());
}

// The eighth sequence's certain one comes before the first one's doubtful one, and two doubtful ones are likelier than one.
TEST(PlanPrefetch, TheLikeliestOfSeveralSequencesComeFirst) {
  const auto guess = [](int32_t expert, float p, Precision precision = 0) {
    return Guess{{LayerId(2), expert}, p, 1, precision};
  };
  std::vector<Guess> guesses = {guess(0, .45f), guess(1, .5f, 1), guess(3, .6f), guess(2, .95f), guess(1, .5f), guess(4, .6f)};
  OrderByLikelihood(guesses);
  std::vector<int32_t> experts;
  for (const Guess& each : guesses) experts.push_back(each.key.expert);
  EXPECT_THAT(experts, ElementsAre(2, 1, 3, 4, 0));
  EXPECT_FLOAT_EQ(guesses[1].probability, .75f);
  EXPECT_EQ(guesses[1].precision, 0);
  guesses.clear();
  OrderByLikelihood(guesses);
  EXPECT_TRUE(guesses.empty());
}

class PrecisionView final : public ResidencyView {
 public:
  explicit PrecisionView(std::vector<CachedKey> resident) : resident_(std::move(resident)) {}
  bool Resident(CachedKey key) const override { return std::ranges::count(resident_, key) > 0; }
  bool Loading(CachedKey) const override { return false; }

 private:
  const std::vector<CachedKey> resident_;
};

TEST(PlanPrefetch, ABetterPrecisionIsGoodEnoughAWorseOneIsNot) {
  const auto guess = [](int32_t expert, Precision precision) { return Guess{{LayerId(2), expert}, .9f, 1, precision}; };
  const PrecisionView view({{LayerId(2), 0, 0}, {LayerId(2), 1, 1}});
  EXPECT_THAT(PlanPrefetch(view, std::vector{guess(0, 1), guess(1, 0), guess(1, 1)}, {.max_loads = 10}),
              ElementsAre(CachedKey{LayerId(2), 1, 0}));
  // Two sequences want it: once, at the better of their precisions.
  EXPECT_THAT(PlanPrefetch(view, std::vector{guess(5, 1), guess(5, 0), guess(5, 1)}, {.max_loads = 10}),
              ElementsAre(CachedKey{LayerId(2), 5, 0}));
}

}  // namespace predictor_test
}  // namespace moed
