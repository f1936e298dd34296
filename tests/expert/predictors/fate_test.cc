#include "tests/expert/provider_rig.h"

namespace moed {
namespace predictors_fate_test {

using testing::ElementsAre;

// Chooses the four experts from hidden[0] on, the first one most.
void Gate(LayerId, std::span<const float> hidden, std::span<float> probabilities) {
  std::ranges::fill(probabilities, .02f);
  for (int rank = 0; rank < kTopK; ++rank) {
    probabilities[static_cast<size_t>(hidden[0] + static_cast<float>(rank)) % kExperts] = .3f - .05f * static_cast<float>(rank);
  }
}

std::unique_ptr<ExpertPredictor> Make(std::string_view options = "") {
  auto predictor = MakePredictor("fate", {StoreContext(), 1, Gate}, PartOptions::Parse(options).value()).value();
  predictor->OnSequenceStart(kSession);
  return predictor;
}
void See(ExpertPredictor& predictor, LayerId layer, std::initializer_list<float> tokens) {
  for (const float hidden : tokens) predictor.OnTokenGateInput(kSession, layer, {&hidden, 1});
  predictor.OnRouted({layer, {}});
}
std::vector<Guess> GuessesOf(ExpertPredictor& predictor, LayerId from) {
  std::vector<Guess> guesses;
  predictor.Predict(kSession, from, guesses);
  return guesses;
}
std::vector<int32_t> ExpertsOf(const std::vector<Guess>& guesses) {
  std::vector<int32_t> experts;
  for (const Guess& guess : guesses) experts.push_back(guess.key.expert);
  return experts;
}

TEST(Fate, AnAnswersGuessesAreAboveThe75thPercentile) {
  auto predictor = Make();
  See(*predictor, LayerId(0), {3});
  // .3 .25 .2 .15 and four of .02: the percentile lies a quarter of the way from .2 to .25.
  const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(0));
  EXPECT_THAT(ExpertsOf(guesses), ElementsAre(3, 4));
  EXPECT_EQ(guesses[0].key.layer, LayerId(2));
  EXPECT_TRUE(GuessesOf(*predictor, LayerId(2)).empty());
}

TEST(Fate, ReadsWhatALayersTimeAllows) {
  auto predictor = Make();
  EXPECT_EQ(predictor->Budget({Phase::kDecode, 3.2})->max_loads, 3);
  EXPECT_EQ(predictor->Budget({Phase::kDecode, .6})->max_loads, 1);
  EXPECT_EQ(predictor->Budget({Phase::kDecode, .4})->max_loads, 0);
  EXPECT_EQ(predictor->Budget({Phase::kDecode, 0})->max_loads, 0);
  EXPECT_GE(predictor->Budget({Phase::kDecode, 1e300})->max_loads, kExperts);
  EXPECT_EQ(predictor->Budget({Phase::kPrefill, 0})->max_loads, INT_MAX);
  EXPECT_EQ(predictor->Budget({Phase::kDecode, 3})->min_probability, 0);
}

TEST(Fate, APromptsGuessesAreOrderedByPopularity) {
  auto predictor = Make("fate-prefill-low=0.34");
  See(*predictor, LayerId(0), {0, 1, 1, 2});
  // Chosen by tokens: 0 once, 1 by three, 2 and 3 by four, 4 by three, 5 once.
  const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(0));
  EXPECT_THAT(ExpertsOf(guesses), ElementsAre(2, 3, 1, 4, 0, 5));
  EXPECT_FLOAT_EQ(guesses[0].probability, 1);
  EXPECT_FLOAT_EQ(guesses[2].probability, .75f);
  EXPECT_FLOAT_EQ(guesses[5].probability, .25f);
  std::vector<int> precisions;
  for (const Guess& guess : guesses) precisions.push_back(guess.precision);
  EXPECT_THAT(precisions, ElementsAre(0, 0, 0, 0, 1, 1));  // a third of six
}

TEST(Fate, TheNextStepBeginsAnew) {
  auto predictor = Make();
  See(*predictor, LayerId(3), {0, 0, 0});
  See(*predictor, LayerId(0), {0, 0});
  See(*predictor, LayerId(0), {5});  // the same layer again: a step that had no other
  EXPECT_THAT(ExpertsOf(GuessesOf(*predictor, LayerId(0))), ElementsAre(5, 6));
}

TEST(Fate, ALongPromptIsSampledEvenly) {
  auto predictor = Make();
  const size_t bytes = predictor->memory_bytes();
  // A quarter of the tokens each.
  for (int i = 0; i < 1000; ++i) {
    const float hidden = static_cast<float>(i / 250 * 2);
    predictor->OnTokenGateInput(kSession, LayerId(0), {&hidden, 1});
  }
  predictor->OnRouted({LayerId(0), {}});
  const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(0));
  ASSERT_EQ(guesses.size(), static_cast<size_t>(kExperts));
  for (const Guess& guess : guesses) EXPECT_NEAR(guess.probability, .5f, .07f) << guess.key.expert;
  EXPECT_EQ(predictor->memory_bytes(), bytes);
}

}  // namespace predictors_fate_test
}  // namespace moed
