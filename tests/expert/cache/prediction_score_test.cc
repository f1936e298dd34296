#include "core/expert/cache/prediction_score.h"

#include "tests/expert/provider_rig.h"

namespace moed {
namespace prediction_score_test {

std::vector<WantedExpert> Want(std::initializer_list<int32_t> experts) {
  std::vector<WantedExpert> wanted;
  for (const int32_t expert : experts) wanted.push_back({.expert = expert});
  return wanted;
}
void ExpectCounts(const PredictionCounts& counts, uint64_t guessed, uint64_t routed, uint64_t right) {
  EXPECT_EQ(counts.guessed, guessed);
  EXPECT_EQ(counts.routed, routed);
  EXPECT_EQ(counts.right, right);
}

TEST(PredictionScore, ComparesGuessesWithTheRouter) {
  PredictionScore score(ExpertIndex(kLayers, kExperts, 1));
  score.OnRouted(kFirst, Phase::kDecode, Want({0, 1}));
  ExpectCounts(score.counts()[1], 0, 2, 0);
  const std::vector<Guess> guesses = {
      {{kSecond, 3}, .9f}, {{kSecond, 4}, .5f}, {{kSecond, 3}, .4f, 1, 1}, {{kThird, 5}, .9f, 2}, {{kSecond, 6}, .1f}};
  score.OnGuesses(guesses, .2f);
  score.OnRouted(kSecond, Phase::kDecode, Want({3, 6}));
  ExpectCounts(score.counts()[1], 2, 4, 1);
  score.OnRouted(kThird, Phase::kPrefill, Want({5, 6, 7}));
  ExpectCounts(score.counts()[0], 1, 3, 1);
  score.OnRouted(kSecond, Phase::kDecode, Want({3, 4}));  // guesses are for one visit
  ExpectCounts(score.counts()[1], 2, 6, 1);
}

TEST(PredictionScore, TheProviderKeepsIt) {
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  RigParts parts;
  parts.predictor = std::make_unique<ScriptedPredictor>(
      std::map<LayerId, std::vector<Guess>>{{kFirst, {{{kSecond, 4}, .5f}, {{kSecond, 5}, .5f}, {{kSecond, 6}, .01f}}}});
  auto provider = MakeProvider(*reads, Records(8), std::move(parts));
  RunLayer(*provider, kFirst, {1});
  RunLayer(*provider, kSecond, {4, 7});
  ExpectCounts(provider->Stats().predictions[1], 2, 3, 1);
}

}  // namespace prediction_score_test
}  // namespace moed
