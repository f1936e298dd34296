#include "tests/expert/provider_rig.h"

namespace moed {
namespace token_id_test {

constexpr int kSeen = 60;

std::unique_ptr<ExpertPredictor> Make() {
  auto predictor = MakePredictor("token-id", {.model = StoreContext()}).value();
  predictor->OnSequenceStart(kSession);
  return predictor;
}
void Route(ExpertPredictor& predictor, LayerId layer, TokenId token, const std::vector<int32_t>& experts,
           Phase phase = Phase::kDecode) {
  std::vector<ExpertChoice> choices;
  for (const int32_t expert : experts) choices.push_back({expert, 0.25f});
  const TokenRouting tokens[] = {{kSession, token, phase, choices}};
  predictor.OnRouted({layer, tokens});
}
std::vector<Guess> GuessesOf(ExpertPredictor& predictor, LayerId from) {
  std::vector<Guess> guesses;
  predictor.Predict(kSession, from, guesses);
  return guesses;
}
// Even tokens go through experts 0 to 3 in every layer, odd ones through 4 to 7.
const std::vector<int32_t>& ExpertsOf(int token) {
  static const std::vector<int32_t> even = {0, 1, 2, 3}, odd = {4, 5, 6, 7};
  return token % 2 == 0 ? even : odd;
}
void Teach(ExpertPredictor& predictor, int tokens) {
  for (int i = 0; i < tokens; ++i) {
    for (const LayerId layer : kLayers) Route(predictor, layer, TokenId(i % 2), ExpertsOf(i));
  }
}

TEST(TokenId, KnowsEveryLayerAheadFromTheFirstOn) {
  auto predictor = Make();
  Teach(*predictor, kSeen);
  for (const int token : {0, 1}) {
    Route(*predictor, LayerId(0), TokenId(token), ExpertsOf(token));
    const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(0));
    ASSERT_EQ(guesses.size(), 2u * kTopK);
    for (size_t i = 0; i < guesses.size(); ++i) {
      EXPECT_EQ(guesses[i].key.expert / 4, token);
      EXPECT_GT(guesses[i].probability, .9f);
      // Equally likely everywhere: the nearer layer first.
      EXPECT_EQ(guesses[i].layer_distance, i < kTopK ? 1 : 2);
      EXPECT_EQ(guesses[i].key.layer, i < kTopK ? LayerId(2) : LayerId(3));
    }
  }
}

// Its tokens pass the encoder, which is the first layer, or the other two.
TEST(TokenId, KnowsTheTokensOfAnEncoderDecodersAnswers) {
  ExpertModelShape model = StoreContext();
  model.encoder_layers = 1;
  auto predictor = MakePredictor("token-id", {.model = model}).value();
  predictor->OnSequenceStart(kSession);
  for (int i = 0; i < kSeen; ++i) {
    for (const LayerId layer : {kSecond, kThird}) Route(*predictor, layer, TokenId(i % 2), ExpertsOf(i));
  }
  for (const int token : {0, 1}) {
    Route(*predictor, kSecond, TokenId(token), ExpertsOf(token));
    const std::vector<Guess> guesses = GuessesOf(*predictor, kSecond);
    ASSERT_EQ(guesses.size(), size_t{kTopK});
    for (const Guess& guess : guesses) EXPECT_EQ(guess.key.expert / 4, token);
  }
}

TEST(TokenId, AnUnknownTokenHasTheFrequency) {
  auto predictor = Make();
  for (int i = 0; i < 400; ++i) {
    for (const LayerId layer : kLayers) Route(*predictor, layer, TokenId(i % 2), ExpertsOf(i % 4 == 0 ? 0 : 1));
  }
  Route(*predictor, LayerId(2), TokenId(99), {0, 1, 2, 3});
  const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(2));
  ASSERT_EQ(guesses.size(), static_cast<size_t>(kExperts));
  for (const Guess& guess : guesses) EXPECT_NEAR(guess.probability, guess.key.expert < 4 ? .25f : .75f, .05f);
}

// One occurrence among the frequency's three: (3 * 1/2 + 1) / 4.
TEST(TokenId, AFewOccurrencesAreShrunkTowardsIt) {
  auto predictor = Make();
  for (const LayerId layer : kLayers) Route(*predictor, layer, TokenId(5), {0, 1, 2, 3});
  Route(*predictor, LayerId(2), TokenId(5), {0, 1, 2, 3});
  const std::vector<Guess> guesses = GuessesOf(*predictor, LayerId(2));
  ASSERT_EQ(guesses.size(), static_cast<size_t>(kExperts));
  for (const Guess& guess : guesses) EXPECT_NEAR(guess.probability, guess.key.expert < 4 ? .625f : .375f, .01f);
}

TEST(TokenId, GuessesForAnswersOnly) {
  auto predictor = Make();
  Teach(*predictor, kSeen);
  Route(*predictor, LayerId(0), TokenId(0), ExpertsOf(0), Phase::kPrefill);
  EXPECT_TRUE(GuessesOf(*predictor, LayerId(0)).empty());
  Route(*predictor, LayerId(0), TokenId(0), ExpertsOf(0));
  EXPECT_FALSE(GuessesOf(*predictor, LayerId(0)).empty());
  EXPECT_TRUE(GuessesOf(*predictor, LayerId(3)).empty());
  predictor->OnSequenceEnd(kSession);
  EXPECT_TRUE(GuessesOf(*predictor, LayerId(0)).empty());
}

TEST(TokenId, IsPacedAndBounded) {
  auto predictor = Make();
  EXPECT_TRUE(predictor->paced());
  Teach(*predictor, 2);
  const size_t bytes = predictor->memory_bytes();
  for (int token = 0; token < 20'000; ++token) {
    for (const LayerId layer : kLayers) Route(*predictor, layer, TokenId(token), ExpertsOf(token));
  }
  EXPECT_EQ(predictor->memory_bytes(), bytes);
}

}  // namespace token_id_test
}  // namespace moed
