#include <array>
#include <random>
#include <set>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace predictors_learned_test {

constexpr LayerId kLast(3);

std::unique_ptr<ExpertPredictor> Make(GateFn gate) {
  auto predictor = MakePredictor("learned", {StoreContext(), 1, std::move(gate)}).value();
  predictor->OnSequenceStart(kSession);
  return predictor;
}
void FlatGate(LayerId, std::span<const float>, std::span<float> probabilities) {
  std::ranges::fill(probabilities, 1.f / kExperts);
}
// Prefers the four experts from hidden[0] on.
void HonestGate(LayerId, std::span<const float> hidden, std::span<float> probabilities) {
  for (int e = 0; e < kExperts; ++e) {
    probabilities[e] = (e - static_cast<int>(hidden[0]) + kExperts) % kExperts < kTopK ? 0.2f : 0.05f;
  }
}

void Route(ExpertPredictor& predictor, LayerId layer, TokenId token, const std::vector<int32_t>& experts, float hidden,
           Phase phase = Phase::kDecode) {
  predictor.OnGateInput(kSession, layer, {&hidden, 1});
  std::vector<ExpertChoice> choices;
  for (const int32_t expert : experts) choices.push_back({expert, 0.25f});
  const TokenRouting tokens[] = {{kSession, token, phase, choices}};
  predictor.OnRouted({layer, tokens});
}
std::vector<Guess> GuessesOf(ExpertPredictor& predictor, LayerId from, SequenceId sequence = kSession) {
  std::vector<Guess> guesses;
  predictor.Predict(sequence, from, guesses);
  return guesses;
}
// Those for the layer after `from` alone.
std::vector<Guess> NextGuessesOf(ExpertPredictor& predictor, LayerId from) {
  std::vector<Guess> guesses = GuessesOf(predictor, from);
  std::erase_if(guesses, [](const Guess& guess) { return guess.layer_distance > 1; });
  return guesses;
}

TEST(LearnedPredictor, ProbabilitiesAreTrue) {
  auto predictor = Make(HonestGate);
  EXPECT_TRUE(predictor->paced());
  std::mt19937 random(3);
  double guessed = 0, right = 0, likely = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto hidden = static_cast<float>(random() % kExperts);
    Route(*predictor, kFirst, TokenId(0), {0, 1, 2, 3}, hidden);
    const std::vector<Guess> guesses = NextGuessesOf(*predictor, kFirst);
    // Half of the time the layer does what its gate foretold, else anything.
    const auto truth = static_cast<int32_t>(random() % 2 == 0 ? static_cast<uint32_t>(hidden) : random() % kExperts);
    std::vector<int32_t> chosen;
    for (int32_t e = truth; e < truth + kTopK; ++e) chosen.push_back(e % kExperts);
    for (size_t g = 0; g < guesses.size(); ++g) {
      EXPECT_EQ(guesses[g].key.layer, kSecond);
      if (g > 0) {
        EXPECT_LE(guesses[g].probability, guesses[g - 1].probability);
      }
      if (i < 1000 || guesses[g].probability < 0.6f) continue;
      ++likely;
      guessed += guesses[g].probability;
      right += static_cast<double>(std::ranges::count(chosen, guesses[g].key.expert));
    }
    Route(*predictor, kSecond, TokenId(0), chosen, hidden);
    Route(*predictor, kLast, TokenId(0), chosen, hidden);
  }
  ASSERT_GT(likely, 1000);
  EXPECT_NEAR(guessed / likely, right / likely, 0.05);
  EXPECT_NEAR(right / likely, 0.75, 0.05);
}

// The layer's input tells nothing, the preview all: each look is trusted as far as it deserves.
TEST(LearnedPredictor, APreviewIsTrustedByItself) {
  auto predictor = Make(HonestGate);
  EXPECT_TRUE(predictor->wants_previews());
  EXPECT_FALSE(MakePredictor("learned", {StoreContext(), 1, nullptr}).value()->wants_previews());
  std::mt19937 random(5);
  const auto any = [&random] { return static_cast<float>(random() % kExperts); };
  std::array<int, 2> guessed{}, right{};  // before the preview, after it
  for (int i = 0; i < 2000; ++i) {
    const float truth = any();
    std::vector<int32_t> chosen;
    for (int e = 0; e < kTopK; ++e) chosen.push_back((static_cast<int32_t>(truth) + e) % kExperts);
    Route(*predictor, kFirst, TokenId(0), {0, 1, 2, 3}, any());
    const std::vector<Guess> before = NextGuessesOf(*predictor, kFirst);
    predictor->OnGatePreview(kSession, kSecond, {&truth, 1});
    const std::vector<Guess> after = NextGuessesOf(*predictor, kFirst);
    if (i >= 1000) {
      for (const auto& [look, guesses] : {std::pair(0, &before), std::pair(1, &after)}) {
        guessed[look] += static_cast<int>(guesses->size());
        right[look] += static_cast<int>(std::ranges::count_if(
            *guesses, [&](const Guess& guess) { return std::ranges::count(chosen, guess.key.expert) > 0; }));
      }
    }
    Route(*predictor, kSecond, TokenId(0), chosen, any());
    Route(*predictor, kLast, TokenId(0), {0, 1, 2, 3}, any());
  }
  EXPECT_EQ(right[1], 1000 * kTopK);
  EXPECT_EQ(guessed[1], right[1]);
  EXPECT_LE(right[0], guessed[0] * 0.6);
}

// A step with drafts has several tokens of a sequence, the gate's input is the last one's.
TEST(LearnedPredictor, WhatIsSaidIsOfTheLastTokenOfAStep) {
  auto predictor = Make(HonestGate);
  std::mt19937 random(7);
  const auto four = [](uint32_t from) {
    std::vector<ExpertChoice> choices;
    for (uint32_t e = from; e < from + kTopK; ++e) choices.push_back({static_cast<int32_t>(e % kExperts), 0.25f});
    return choices;
  };
  for (int i = 0; i < 2000; ++i) {
    const uint32_t truth = random() % kExperts;
    const std::vector<ExpertChoice> drafted = four(random()), chosen = four(truth);
    const TokenRouting tokens[] = {{kSession, TokenId(1), Phase::kDecode, drafted},
                                   {kSession, TokenId(2), Phase::kDecode, chosen}};
    for (const LayerId layer : kLayers) {
      const auto hidden = static_cast<float>(truth);
      predictor->OnGateInput(kSession, layer, {&hidden, 1});
      predictor->OnRouted({layer, tokens});
      const std::vector<Guess> guesses = NextGuessesOf(*predictor, layer);
      if (i < 1000 || layer == kLast) continue;
      ASSERT_EQ(guesses.size(), size_t{kTopK});
      for (const Guess& guess : guesses) {
        EXPECT_EQ(std::ranges::count(chosen, guess.key.expert, &ExpertChoice::expert), 1);
        EXPECT_GT(guess.probability, 0.9f);
      }
    }
  }
}

TEST(LearnedPredictor, APreviewOfAnotherLayerIsNone) {
  auto predictor = Make(HonestGate);
  Route(*predictor, kFirst, TokenId(1), {0, 1, 2, 3}, 2);
  const float hidden = 5;
  for (const LayerId layer : {kFirst, kLast}) predictor->OnGatePreview(kSession, layer, {&hidden, 1});
  const auto guessed = [&] {
    std::set<int32_t> experts;
    for (const Guess& guess : NextGuessesOf(*predictor, kFirst)) experts.insert(guess.key.expert);
    return experts;
  };
  EXPECT_EQ(guessed(), (std::set<int32_t>{2, 3, 4, 5}));
  predictor->OnGatePreview(kSession, kSecond, {&hidden, 1});
  EXPECT_EQ(guessed(), (std::set<int32_t>{0, 5, 6, 7}));
}

TEST(LearnedPredictor, RemembersWhereATokenWent) {
  auto predictor = Make(FlatGate);
  for (int i = 0; i < 300; ++i) {
    const bool even = i % 2 == 0;
    const std::vector<int32_t> experts = even ? std::vector<int32_t>{0, 1, 2, 3} : std::vector<int32_t>{4, 5, 6, 7};
    for (const LayerId layer : kLayers) {
      Route(*predictor, layer, TokenId(even ? 40 : 41), experts, 0);
      const std::vector<Guess> guesses = NextGuessesOf(*predictor, layer);
      if (layer == kLast) {
        ASSERT_TRUE(guesses.empty());
      }
      if (i < 200 || layer == kLast) continue;
      ASSERT_GE(guesses.size(), size_t{kTopK});
      std::set<int32_t> best;
      for (size_t g = 0; g < kTopK; ++g) best.insert(guesses[g].key.expert);
      EXPECT_EQ(best, std::set<int32_t>(experts.begin(), experts.end()));
      EXPECT_GT(guesses[0].probability, 0.8f);
    }
  }
}

TEST(LearnedPredictor, SaysNothingWithoutADecodingInputOfThatLayer) {
  int calls = 0;
  auto predictor = Make([&](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    ++calls;
    HonestGate(layer, hidden, probabilities);
  });
  EXPECT_TRUE(GuessesOf(*predictor, kFirst).empty());
  Route(*predictor, kFirst, TokenId(1), {0, 1, 2, 3}, 0, Phase::kPrefill);
  EXPECT_TRUE(GuessesOf(*predictor, kFirst).empty());
  Route(*predictor, kFirst, TokenId(1), {0, 1, 2, 3}, 0);
  EXPECT_TRUE(GuessesOf(*predictor, kSecond).empty());  // its input is not there yet
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(GuessesOf(*predictor, kFirst).empty());
  EXPECT_EQ(calls, 1);
}

// Two tokens in turns: known from the token alone for every layer that is still to come.
TEST(LearnedPredictor, LooksAheadOverSeveralLayersWithoutAGate) {
  auto predictor = MakePredictor("learned", {.model = StoreContext()}).value();
  predictor->OnSequenceStart(kSession);
  for (int i = 0; i < 400; ++i) {
    const bool even = i % 2 == 0;
    const std::vector<int32_t> experts = even ? std::vector<int32_t>{0, 1, 2, 3} : std::vector<int32_t>{4, 5, 6, 7};
    predictor->OnToken(kSession, TokenId(even ? 40 : 41));
    for (const LayerId layer : kLayers) {
      std::vector<ExpertChoice> choices;
      for (const int32_t expert : experts) choices.push_back({expert, 0.25f});
      const TokenRouting tokens[] = {{kSession, TokenId(even ? 40 : 41), Phase::kDecode, choices}};
      predictor->OnRouted({layer, tokens});
      const std::vector<Guess> guesses = GuessesOf(*predictor, layer);
      if (i < 300 || layer != kFirst) continue;
      std::set<CachedKey> keys;
      for (const Guess& guess : guesses) {
        keys.insert({guess.key.layer, guess.key.expert});
        EXPECT_EQ(guess.layer_distance, guess.key.layer == kSecond ? 1 : 2);
      }
      std::set<CachedKey> expected;
      for (const int32_t expert : experts) {
        expected.insert({kSecond, expert});
        expected.insert({kLast, expert});
      }
      EXPECT_EQ(keys, expected);
    }
  }
}

// The first layer goes either way by chance, the last one follows it, and nothing else tells: known two layers ahead.
TEST(LearnedPredictor, LayersFurtherOnAreToldOfByThosePassed) {
  auto predictor = MakePredictor("learned", {.model = StoreContext()}).value();
  predictor->OnSequenceStart(kSession);
  std::mt19937 random(9);
  size_t guessed = 0, right = 0;
  double probability = 0;
  for (int i = 0; i < 2000; ++i) {
    const int32_t way = random() % 2 == 0 ? 0 : kTopK;
    predictor->OnToken(kSession, TokenId(7));
    for (const LayerId layer : kLayers) {
      std::vector<ExpertChoice> choices;
      for (int32_t slot = 0; slot < kTopK; ++slot) choices.push_back({slot + (layer == kSecond ? 2 : way), 0.25f});
      const TokenRouting tokens[] = {{kSession, TokenId(7), Phase::kDecode, choices}};
      predictor->OnRouted({layer, tokens});
      const std::vector<Guess> guesses = GuessesOf(*predictor, layer);
      if (i < 1500 || layer != kFirst) continue;
      for (const Guess& guess : guesses) {
        if (guess.layer_distance != 2) continue;
        ++guessed;
        right += guess.key.expert / kTopK == way / kTopK;
        probability += guess.probability;
      }
    }
  }
  EXPECT_GT(guessed, 500u * kTopK * 9 / 10);
  EXPECT_GT(right, guessed * 95 / 100);
  EXPECT_GT(probability / static_cast<double>(guessed), 0.6);
}

TEST(LearnedPredictor, MemoryGrowsWithLiveSequencesOnly) {
  auto predictor = MakePredictor("learned", {StoreContext(), 1, FlatGate}).value();
  const size_t bytes = predictor->memory_bytes();
  predictor->OnSequenceStart(kSession);
  const size_t with_one = predictor->memory_bytes();
  EXPECT_GT(with_one, bytes);
  for (int token = 0; token < 20'000; ++token) {
    for (const LayerId layer : kLayers) Route(*predictor, layer, TokenId(token), {token % kExperts}, 0);
  }
  EXPECT_EQ(predictor->memory_bytes(), with_one);
  predictor->OnSequenceEnd(kSession);
  EXPECT_EQ(predictor->memory_bytes(), bytes);
}

// The provider does not even ask for guesses that cannot pay.
TEST(LearnedPredictor, CostsNothingOnceEverythingIsResident) {
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  int calls = 0;
  RigParts parts;
  parts.policy = MakePolicy("learned", {StoreContext()}).value();
  parts.predictor = MakePredictor("learned", {StoreContext(), 1,
                                              [&](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
                                                ++calls;
                                                HonestGate(layer, hidden, probabilities);
                                              }})
                        .value();
  auto provider = MakeProvider(*reads, Records(24), std::move(parts));
  const auto run = [&](int tokens) {
    for (int i = 0; i < tokens; ++i) {
      provider->OnToken(kSession, TokenId(1));
      for (const LayerId layer : kLayers) {
        const float hidden = 0;
        provider->OnGateInput(kSession, layer, {&hidden, 1});
        RunLayer(*provider, layer, {0, 1, 2, 3});
      }
    }
  };
  run(200);
  const int before = calls;
  run(100);
  EXPECT_EQ(calls, before);
}

}  // namespace predictors_learned_test
}  // namespace moed
