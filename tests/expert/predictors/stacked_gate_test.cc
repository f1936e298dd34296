#include "tests/expert/provider_rig.h"

namespace moed {
namespace stacked_gate_test {

using testing::ElementsAre;

using Seen = std::tuple<int32_t, int32_t, int, int>;  // layer, expert, distance, precision

std::vector<Seen> AllOf(const std::vector<Guess>& guesses) {
  std::vector<Seen> seen;
  for (const Guess& g : guesses) seen.emplace_back(g.key.layer.value(), g.key.expert, g.layer_distance, g.precision);
  return seen;
}

// Layer 2 prefers 7, 0, 3, 1 (of a mass of .8); layer 3 prefers 2, 4, 5, 6.
void Gate(LayerId layer, std::span<const float>, std::span<float> probabilities) {
  const float second[kExperts] = {.2f, .08f, .06f, .12f, .05f, .05f, .04f, .4f};
  const float third[kExperts] = {.05f, .05f, .3f, .05f, .2f, .2f, .1f, .05f};
  std::copy_n(layer == LayerId(2) ? second : third, kExperts, probabilities.begin());
}

std::vector<Guess> GuessesOf(std::string_view options, LayerId from) {
  auto predictor = MakePredictor("stacked-gate", {StoreContext(), 1, Gate}, PartOptions::Parse(options).value()).value();
  predictor->OnSequenceStart(kSession);
  const float hidden = 1;
  predictor->OnGateInput(kSession, from, {&hidden, 1});
  std::vector<Guess> guesses;
  predictor->Predict(kSession, from, guesses);
  return guesses;
}

TEST(StackedGate, TheTopKOfEveryLayerAhead) {
  const std::vector<Guess> guesses = GuessesOf("", LayerId(0));
  EXPECT_THAT(AllOf(guesses), ElementsAre(Seen(2, 7, 1, 0), Seen(2, 0, 1, 0), Seen(2, 3, 1, 0), Seen(2, 1, 1, 0),
                                          Seen(3, 2, 2, 0), Seen(3, 4, 2, 0), Seen(3, 5, 2, 0), Seen(3, 6, 2, 0)));
  EXPECT_FLOAT_EQ(guesses[1].probability, .2f);
  EXPECT_EQ(AllOf(GuessesOf("stacked-gate-layers=1", LayerId(0))).size(), 4u);
  EXPECT_EQ(AllOf(GuessesOf("", LayerId(2))).size(), 4u);
  EXPECT_TRUE(GuessesOf("", LayerId(3)).empty());
}

TEST(StackedGate, PrecisionFollowsThePredictedScores) {
  // Scores in layer 2: 0, .5, .75, .9; in layer 3: 0, .375, .625, .875.
  EXPECT_THAT(AllOf(GuessesOf("hobbit-t1=0.6,hobbit-t2=0.88", LayerId(0))),
              ElementsAre(Seen(2, 7, 1, 0), Seen(2, 0, 1, 0), Seen(2, 3, 1, 1),  // 1 is not read at all
                          Seen(3, 2, 2, 0), Seen(3, 4, 2, 0), Seen(3, 5, 2, 1), Seen(3, 6, 2, 1)));
}

TEST(StackedGate, SaysNothingWithoutAnInputOfThatLayer) {
  auto predictor = MakePredictor("stacked-gate", {StoreContext(), 1, Gate}).value();
  std::vector<Guess> guesses;
  predictor->Predict(kSession, LayerId(0), guesses);
  predictor->OnSequenceStart(kSession);
  predictor->Predict(kSession, LayerId(0), guesses);
  const float hidden = 1;
  predictor->OnGateInput(kSession, LayerId(0), {&hidden, 1});
  predictor->Predict(kSession, LayerId(2), guesses);
  EXPECT_TRUE(guesses.empty());
}

TEST(StackedGate, SettingsOutsideTheirRangeAreRefused) {
  const auto refusal = [](std::string_view predictor, std::string_view options) {
    const absl::Status status = MakePredictor(predictor, {StoreContext(), 1, Gate}, PartOptions::Parse(options).value()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return MessageText(status);
  };
  EXPECT_THAT(refusal("stacked-gate", "hobbit-t1=0.9,hobbit-t2=0.6"), testing::HasSubstr("0 <= T1 <= T2 <= 1"));
  EXPECT_THAT(refusal("stacked-gate", "hobbit-t1=-1"), testing::HasSubstr("0 to 1"));
  EXPECT_THAT(refusal("stacked-gate", "stacked-gate-layers=0"), testing::HasSubstr("1 to 64"));
  EXPECT_THAT(refusal("stacked-gate", "stacked-gate-layers=1.5"), testing::HasSubstr("whole number"));
  EXPECT_THAT(refusal("fate", "fate-prefill-low=2"), testing::HasSubstr("0 to 1"));
}

}  // namespace stacked_gate_test
}  // namespace moed
