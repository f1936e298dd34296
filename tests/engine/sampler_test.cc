#include "core/engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/base/exponential.h"

namespace moed {
namespace sampler_test {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<TokenId> Tokens(std::initializer_list<int> ids) {
  std::vector<TokenId> tokens;
  for (int id : ids) tokens.push_back(TokenId(id));
  return tokens;
}

int Pick(const std::vector<float>& logits, const SamplingParams& params, const SamplingContext& context = {}) {
  Sampler sampler(static_cast<int>(logits.size()));
  auto token = sampler.Sample(logits, params, context);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? token->value() : -1;
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// How often each token comes out of `draws` seeds.
std::map<int, int> Counts(const std::vector<float>& logits, const SamplingParams& params, int draws,
                          SamplingContext context = {}) {
  Sampler sampler(static_cast<int>(logits.size()));
  std::map<int, int> counts;
  for (int seed = 0; seed < draws; ++seed) {
    context.seed = seed;
    ++counts[sampler.Sample(logits, params, context)->value()];
  }
  return counts;
}

std::set<int> Support(const std::vector<float>& logits, const SamplingParams& params) {
  std::set<int> support;
  for (const auto& [token, count] : Counts(logits, params, 4000)) support.insert(token);
  return support;
}

std::vector<float> LogOf(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// Pearson's statistic against the probabilities that are expected.
double ChiSquare(const std::map<int, int>& counts, const std::vector<double>& probabilities, int draws) {
  double statistic = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    auto found = counts.find(static_cast<int>(i));
    const double observed = found == counts.end() ? 0 : found->second;
    if (probabilities[i] == 0) {
      EXPECT_EQ(observed, 0) << "token " << i;
      continue;
    }
    const double expected = probabilities[i] * draws;
    statistic += (observed - expected) * (observed - expected) / expected;
  }
  return statistic;
}

TEST(SamplerTest, TemperatureZeroTakesTheHighestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(Pick({0, 3, 1, 3}, Greedy()), 1);
  EXPECT_EQ(Pick({-5, -5, -5}, Greedy()), 0);
}

TEST(SamplerTest, BiasIsAddedBeforeEverythingElse) {
  SamplingParams params = Greedy();
  params.logit_bias = {{TokenId(2), 2.5f}};
  EXPECT_EQ(Pick({1, 2, 0}, params), 2);
  // 4 halved by the repetition penalty is 2, still above 1.9; had the bias come after, token 0 would have 0.1 / 2 + 3.9.
  params.logit_bias = {{TokenId(0), 3.9f}};
  params.repetition_penalty = 2;
  const auto seen = Tokens({0});
  EXPECT_EQ(Pick({0.1f, 2.1f}, params, {0, seen, 0, {}}), 1);
}

TEST(SamplerTest, RepetitionPenaltyCountsPromptAndAnswerOnce) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 2;
  const auto seen = Tokens({0, 0, 0, 1});
  // Positive logits are divided once however often the token came: 3/2 > 1.4; twice would be 0.75.
  EXPECT_EQ(Pick({3, 2, 1.4f}, params, {0, seen, 3, {}}), 0);
  EXPECT_EQ(Pick({3, 2, 1.6f}, params, {0, seen, 3, {}}), 2);
  // Negative ones are multiplied: -1 becomes -2.
  EXPECT_EQ(Pick({-1, -1, -1.5f}, params, {0, seen, 3, {}}), 2);
}

TEST(SamplerTest, FrequencyAndPresenceCountTheAnswerOnly) {
  SamplingParams params = Greedy();
  params.frequency_penalty = 0.5f;
  const auto seen = Tokens({0, 0, 1, 1, 2});
  // Answer: 1, 1, 2 -> 1 loses 1.0 and 2 loses 0.5; 0 is of the prompt.
  EXPECT_EQ(Pick({0.9f, 2, 1.3f}, params, {0, seen, 2, {}}), 1);     // 0.9, 1.0, 0.8
  EXPECT_EQ(Pick({0.9f, 1.8f, 1.5f}, params, {0, seen, 2, {}}), 2);  // 0.9, 0.8, 1.0
  params.frequency_penalty = 0;
  params.presence_penalty = 1.5f;
  EXPECT_EQ(Pick({0.9f, 2.3f, 2.5f}, params, {0, seen, 2, {}}), 2);  // 0.9, 0.8, 1.0
  EXPECT_EQ(Pick({1.1f, 2.3f, 2.5f}, params, {0, seen, 2, {}}), 0);
  params.presence_penalty = -2;
  EXPECT_EQ(Pick({2, 0.5f, 0.4f}, params, {0, seen, 2, {}}), 1);
}

TEST(SamplerTest, ScratchIsCleanBetweenCalls) {
  Sampler sampler(3);
  SamplingParams params = Greedy();
  params.frequency_penalty = 2;
  params.repetition_penalty = 1.5f;
  const auto seen = Tokens({0, 0, 1});
  const std::vector<float> logits{4, 1, 3};
  const SamplingContext context{0, seen, 0, {}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sampler.Sample(logits, params, context)->value(), 2);
    EXPECT_EQ(sampler.Sample(logits, Greedy(), context)->value(), 0);
  }
}

TEST(SamplerTest, ForbiddenTokensAreNeverChosen) {
  const auto forbidden = Tokens({1, 3});
  EXPECT_EQ(Pick({0, 9, 1, 8}, Greedy(), {0, {}, 0, forbidden}), 2);
  SamplingContext context;
  context.forbidden = forbidden;
  for (const auto& [token, count] : Counts({0, 9, 1, 8}, SamplingParams{}, 500, context)) EXPECT_TRUE(token == 0 || token == 2);
}

TEST(SamplerTest, NothingToChooseFromOrNoNumbersIsAnError) {
  Sampler sampler(2);
  const auto all = Tokens({0, 1});
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 2}, SamplingParams{}, {0, {}, 0, all}).status().code(),
            absl::StatusCode::kInternal);
  for (float bad : {std::nanf(""), kInfinity}) {
    EXPECT_EQ(sampler.Sample(std::vector<float>{1, bad}, Greedy(), {}).status().code(), absl::StatusCode::kInternal) << bad;
    EXPECT_EQ(sampler.Sample(std::vector<float>{bad, 1}, SamplingParams{}, {}).status().code(), absl::StatusCode::kInternal)
        << bad;
  }
}

TEST(SamplerTest, ExtremeParametersStillChoose) {
  SamplingParams params;
  params.temperature = 1e-30f;
  EXPECT_EQ(Pick({1, 2, 2.0001f}, params), 2);
  params.temperature = 1e30f;
  EXPECT_EQ(Support({1, 2, 90}, params).size(), 3u);
  params.temperature = 1;
  params.repetition_penalty = 1e-38f;
  const auto seen = Tokens({0, 1});
  EXPECT_EQ(Pick({5, -5, 1}, params, {7, seen, 0, {}}), 0);
}

struct FilterCase {
  int top_k;
  float top_p;
  float min_p;
  std::vector<double> expected;  // the distribution that is left
};

TEST(SamplerTest, FiltersLeaveTheExpectedDistribution) {
  const std::vector<double> model{0.05, 0.4, 0.1, 0.25, 0.2};
  const FilterCase cases[] = {
      {0, 1, 0, model},
      {1, 1, 0, {0, 1, 0, 0, 0}},
      {2, 1, 0, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}},
      {99, 1, 0, model},
      {0, 0.39f, 0, {0, 1, 0, 0, 0}},
      {0, 0.64f, 0, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}},
      {0, 0.66f, 0, {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85}},
      {0, 0.96f, 0, model},
      {0, 1, 0.45f, {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85}},
      {0, 1, 0.55f, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}},
      // top_p counts what top_k left: 0.4 / 0.65 = 0.615.
      {2, 0.61f, 0, {0, 1, 0, 0, 0}},
      {2, 0.63f, 0, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}},
      {4, 0.99f, 0.6f, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}},
  };
  constexpr int kDraws = 20000;
  for (const FilterCase& c : cases) {
    SamplingParams params;
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    const double statistic = ChiSquare(Counts(LogOf(model), params, kDraws), c.expected, kDraws);
    EXPECT_LT(statistic, 18.5) << "top_k " << c.top_k << " top_p " << c.top_p << " min_p " << c.min_p;  // 99.9 % at 4 degrees
  }
}

TEST(SamplerTest, TemperatureSharpensAsSoftmaxSays) {
  const std::vector<float> logits{0, 1, 2};
  for (float temperature : {0.5f, 1.0f, 3.0f}) {
    std::vector<double> expected;
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit / temperature);
    for (float logit : logits) expected.push_back(std::exp(logit / temperature) / sum);
    SamplingParams params;
    params.temperature = temperature;
    EXPECT_LT(ChiSquare(Counts(logits, params, 20000), expected, 20000), 13.9) << temperature;  // 99.9 % at 2 degrees
  }
}

TEST(SamplerTest, EqualLogitsRankById) {
  SamplingParams params;
  params.top_k = 2;
  EXPECT_THAT(Support({1, 1, 1, 1, 0}, params), UnorderedElementsAre(0, 1));
  params.top_k = 0;
  params.top_p = 0.5f;
  EXPECT_THAT(Support({0, 0, 0, 0}, params), UnorderedElementsAre(0, 1));
}

TEST(SamplerTest, TheLeastOfTopPAndTheMostOfMinPKeepTheLikeliest) {
  const std::vector<float> logits = {1, 3, 2.75f, -1};
  SamplingParams of_top_p, of_min_p;
  of_top_p.top_p = 0;
  of_min_p.min_p = 1;
  for (const SamplingParams& params : {of_top_p, of_min_p}) EXPECT_THAT(Support(logits, params), UnorderedElementsAre(1));
}

TEST(SamplerTest, TheRandomNumberDependsOnSeedAndLengthAlone) {
  EXPECT_EQ(UniformAt(1, 2), UniformAt(1, 2));
  std::set<double> distinct;
  double sum = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t length = 0; length < 100; ++length) {
      const double u = UniformAt(seed, length);
      EXPECT_GE(u, 0);
      EXPECT_LT(u, 1);
      distinct.insert(u);
      sum += u;
    }
  }
  EXPECT_EQ(distinct.size(), 10000u);
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

TEST(SamplerTest, DrawsAtConsecutiveLengthsFollowTheDistribution) {
  const std::vector<double> model{0.1, 0.2, 0.7};
  const std::vector<float> logits = LogOf(model);
  Sampler sampler(3);
  std::vector<TokenId> sequence;
  std::map<int, int> counts;
  for (int i = 0; i < 5000; ++i) {
    ++counts[sampler.Sample(logits, SamplingParams{}, {42, sequence, 0, {}})->value()];
    sequence.push_back(TokenId(0));
  }
  EXPECT_LT(ChiSquare(counts, model, 5000), 13.9);
}

// The same operations by full sorting, in the order in which they are documented.
int NaiveSample(const std::vector<float>& logits, const SamplingParams& params, uint64_t seed) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  const float highest = logits[order[0]];
  auto weight = [&](int id) { return Exponential((logits[id] - highest) / params.temperature); };
  if (params.top_k > 0) order.resize(std::min<size_t>(order.size(), params.top_k));
  double total = 0;
  for (int id : order) total += weight(id);
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    sum += weight(order[i]);
    if (params.top_p < 1 && sum >= params.top_p * total) order.resize(i + 1);
  }
  std::erase_if(order, [&](int id) { return weight(id) < params.min_p; });
  std::sort(order.begin(), order.end());
  total = 0;
  for (int id : order) total += weight(id);
  double left = UniformAt(seed, 0) * total;
  for (int id : order) {
    left -= weight(id);
    if (left < 0) return id;
  }
  return order.back();
}

TEST(SamplerTest, AgreesWithANaiveTwin) {
  std::mt19937 random(7);
  for (int size : {1, 2, 63, 64, 65, 400, 5000}) {
    std::normal_distribution<float> normal(0, size > 1000 ? 1.0f : 3.0f);
    Sampler sampler(size);
    for (int round = 0; round < 40; ++round) {
      std::vector<float> logits(size);
      for (float& logit : logits) logit = normal(random);
      SamplingParams params;
      params.temperature = 0.5f + 0.25f * (random() % 5);
      params.top_k = random() % 3 == 0 ? 1 + random() % size : 0;
      params.top_p = random() % 2 == 0 ? 0.05f + 0.9f * (random() % 100) / 100.0f : 1.0f;
      params.min_p = random() % 3 == 0 ? 0.001f * (random() % 100) : 0.0f;
      EXPECT_EQ(sampler.Sample(logits, params, {uint64_t(round), {}, 0, {}})->value(), NaiveSample(logits, params, round))
          << "size " << size << " round " << round;
    }
  }
}

// A library's exponential differs in the last place at the first two, so that the other token would be kept or dropped.
TEST(SamplerTest, ProbabilitiesAreOurOwnExponentialToTheBit) {
  for (float logit : {-0x1.000016p+0f, -0x1.00028ep+0f, -0.1f, -2.5f}) {
    SamplingParams params;
    params.min_p = Exponential(logit);
    const std::vector<float> logits = {logit, 0.0f};
    uint64_t seed = 0;
    while (UniformAt(seed, 0) * (params.min_p + 1.0) >= params.min_p) ++seed;  // draws the first, if it is kept
    EXPECT_EQ(Pick(logits, params, {.seed = seed}), 0) << logit;
    params.min_p = std::nextafter(params.min_p, 1.0f);
    EXPECT_EQ(Pick(logits, params, {.seed = seed}), 1) << logit;
  }
}

TEST(SamplerTest, AgreesWithANaiveTwinOnALargeVocabulary) {
  constexpr int kVocabulary = 151936;
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = normal(random);
  Sampler sampler(kVocabulary);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SamplingParams params;
    params.top_k = seed % 2 == 0 ? 50 : 0;
    params.top_p = 0.9f;
    EXPECT_EQ(sampler.Sample(logits, params, {seed, {}, 0, {}})->value(), NaiveSample(logits, params, seed));
  }
}

TEST(SamplerTest, OnlyWhatIsAllowedIsChosenAndWhatEndsBesides) {
  std::vector<float> logits(130, 1.0f);
  logits[7] = 9;
  logits[128] = 8;
  logits[70] = 2;
  const std::vector<uint64_t> allowed = {0, uint64_t{1} << (70 - 64) | uint64_t{1} << (71 - 64), 0};
  EXPECT_EQ(Pick(logits, Greedy(), {.allowed = allowed}), 70);
  const auto ending = Tokens({128});
  EXPECT_EQ(Pick(logits, Greedy(), {.allowed = allowed, .ending = ending}), 128);
  EXPECT_EQ(Pick(logits, Greedy(), {.forbidden = ending, .allowed = allowed, .ending = ending}), 70);
  for (const auto& [token, count] : Counts(logits, {}, 50, {.allowed = allowed}))
    EXPECT_TRUE(token == 70 || token == 71) << count;
  Sampler sampler(130);
  EXPECT_FALSE(sampler.Sample(logits, {}, {.allowed = std::vector<uint64_t>(3, 0)}).ok());
}

}  // namespace sampler_test
}  // namespace moed
