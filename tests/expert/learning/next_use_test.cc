// What is learned about the next use of experts, by hand-made sequences.
#include "core/expert/learning/next_use.h"

#include <cmath>
#include <random>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace next_use_test {

constexpr int kPositions = 3;

void Learn(NextUse& next_use, const LayerRouting& routing) {
  next_use.Learn(routing);
  for (int position = 0; position < kPositions; ++position) next_use.Publish(position);
}
// Expected until the next use, beyond the next visit to the expert's layer.
double TokensAway(const NextUse& next_use, int position, int32_t expert) {
  return std::log(next_use.Value(static_cast<size_t>(position * kExperts + expert))) / std::log(NextUse::ValueIn(1));
}

class NextUseTest : public testing::Test {
 protected:
  // All layers choose alike.
  void Step(NextUse& next_use, std::vector<std::pair<TokenId, std::vector<int32_t>>> tokens, Phase phase = Phase::kDecode) {
    for (const LayerId layer : kLayers) {
      std::vector<std::vector<ExpertChoice>> choices;
      std::vector<TokenRouting> routing;
      for (const auto& [token, experts] : tokens) {
        choices.emplace_back();
        for (const int32_t expert : experts) choices.back().push_back({expert, 0.25f});
      }
      for (size_t i = 0; i < tokens.size(); ++i) {
        routing.push_back({kSession, tokens[i].first, phase, choices[i]});
        routing.back().before = i > 0 ? tokens[i - 1].first : before_;
      }
      Learn(next_use, {layer, routing});
    }
    before_ = tokens.back().first;
  }

  TokenId before_{-1};
};

// Of tokens that pass the last two layers alone. Expert 1 follows token 1, expert 2 token 2, and either comes at random.
TEST_F(NextUseTest, LearnsWhatFollowsTheTokensOfAnEncoderDecodersAnswers) {
  ExpertModelShape shape = StoreContext();
  shape.encoder_layers = 1;
  NextUse next_use(shape);
  std::mt19937 random(3);
  int before = 1;
  for (int i = 0; i < 600; ++i) {
    const int token = 1 + static_cast<int>(random() % 2);
    const ExpertChoice choice{before, 1.f};
    TokenRouting routing{kSession, TokenId(token), Phase::kDecode, {&choice, 1}};
    routing.before = TokenId(before);
    for (const LayerId layer : {kSecond, kThird}) Learn(next_use, {layer, {&routing, 1}});
    before = token;
    if (i < 300) continue;
    EXPECT_LT(TokensAway(next_use, 2, token), TokensAway(next_use, 2, 3 - token)) << i;
  }
}

TEST_F(NextUseTest, BeginsAsRecencyAndFrequency) {
  NextUse next_use(StoreContext());
  for (int i = 0; i < 3; ++i) Step(next_use, {{TokenId(i), {0, 1, 2, 3}}});
  Step(next_use, {{TokenId(4), {0, 1, 2, 4}}});
  for (int position = 0; position < kPositions; ++position) {
    EXPECT_LT(TokensAway(next_use, position, 0), TokensAway(next_use, position, 3));  // used as often or more, and later
    EXPECT_LT(TokensAway(next_use, position, 3), TokensAway(next_use, position, 7));  // never used
    EXPECT_LT(TokensAway(next_use, position, 4), TokensAway(next_use, position, 7));
    for (int expert = 0; expert < kExperts; ++expert) {
      EXPECT_GE(TokensAway(next_use, position, expert), 0);
      EXPECT_TRUE(std::isfinite(TokensAway(next_use, position, expert)));
    }
  }
}

// Two tokens in turns, each with experts of its own: after either, the other's experts are the next ones, used last or not.
TEST_F(NextUseTest, LearnsWhatFollowsAToken) {
  NextUse next_use(StoreContext());
  for (int i = 0; i < 400; ++i) {
    if (i % 2 == 0) {
      Step(next_use, {{TokenId(10), {0, 1, 2, 3}}});
    } else {
      Step(next_use, {{TokenId(11), {4, 5, 6, 7}}});
    }
  }
  for (int position = 0; position < kPositions; ++position) {
    EXPECT_LT(TokensAway(next_use, position, 0), TokensAway(next_use, position, 4));
    EXPECT_LT(TokensAway(next_use, position, 0), 0.5f);
  }
}

// A step of drafts: each token is what follows the one before it in the step.
TEST_F(NextUseTest, LearnsWhatFollowsATokenWithinAStep) {
  NextUse next_use(StoreContext());
  for (int i = 0; i < 400; ++i) Step(next_use, {{TokenId(10), {0, 1, 2, 3}}, {TokenId(11), {4, 5}}, {TokenId(12), {6, 7}}});
  Step(next_use, {{TokenId(10), {0, 1, 2, 3}}});
  for (int position = 0; position < kPositions; ++position) {
    for (const int expert : {6, 7}) EXPECT_LT(TokensAway(next_use, position, 4), TokensAway(next_use, position, expert));
  }
}

TEST_F(NextUseTest, APromptDoesNotFlushWhatIsKnown) {
  NextUse next_use(StoreContext());
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) Step(next_use, {{TokenId(i % 50), {0, 1, 2, static_cast<int>(3 + random() % 4)}}});
  std::vector<std::pair<TokenId, std::vector<int32_t>>> prompt;
  for (int i = 0; i < 512; ++i) prompt.push_back({TokenId(100 + i), {0, 1, 2, static_cast<int>(3 + random() % 4)}});
  for (int i = 0; i < 496; ++i) prompt[static_cast<size_t>(i)].second = {7};  // long ago in the prompt
  Step(next_use, prompt, Phase::kPrefill);
  for (int position = 0; position < kPositions; ++position) {
    for (const int32_t favourite : {0, 1, 2}) {
      EXPECT_LT(TokensAway(next_use, position, favourite), TokensAway(next_use, position, 7));
    }
  }
}

TEST_F(NextUseTest, IsDeterministicAndBounded) {
  NextUse first(StoreContext()), second(StoreContext());
  const size_t bytes = first.memory_bytes();
  std::mt19937 random(6);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> experts;
    for (int32_t e = 0; e < kExperts; ++e) {
      if (random() % 2 == 0) experts.push_back(e);
    }
    for (NextUse* each : {&first, &second}) Step(*each, {{TokenId(i * 97), experts}});
  }
  EXPECT_EQ(first.memory_bytes(), bytes);
  for (int position = 0; position < kPositions; ++position) {
    for (int expert = 0; expert < kExperts; ++expert) {
      EXPECT_EQ(TokensAway(first, position, expert), TokensAway(second, position, expert));
    }
  }
}

TEST_F(NextUseTest, TokensOfSeveralSequencesAreOneVisit) {
  NextUse next_use(StoreContext());
  const SequenceId other(2);
  for (int i = 0; i < 300; ++i) {
    for (const LayerId layer : kLayers) {
      Routing routing(layer, {0, 1});
      routing.Add(other, {2, 3});
      Learn(next_use, routing.Get());
    }
  }
  for (const int32_t used : {0, 1, 2, 3}) EXPECT_LT(TokensAway(next_use, 1, used), 1);
  for (const int32_t unused : {4, 5, 6, 7}) EXPECT_GT(TokensAway(next_use, 1, unused), 4);
}

// One expert a token, always the same token. Half of the time the next expert in a circle comes, else any: only the pair of
// experts tells. The share of visits after which the expert that follows is the one expected first, of all others.
double ShareForeseen(size_t table_bytes) {
  ExpertModelShape shape = StoreContext();
  shape.top_k = 1;
  shape.table_bytes = table_bytes;
  NextUse next_use(shape);
  std::mt19937 random(5);
  int32_t expert = 0;
  int foreseen = 0;
  constexpr int kVisits = 4000, kCounted = 1000;
  for (int visit = 0; visit < kVisits; ++visit) {
    expert = random() % 2 == 0 ? (expert + 3) % kExperts : static_cast<int32_t>(random() % kExperts);
    Routing routing(kFirst, {expert});
    Learn(next_use, routing.Get());
    if (visit < kVisits - kCounted) continue;
    int32_t first = -1;
    for (int32_t other = 0; other < kExperts; ++other) {
      if (other != expert && (first < 0 || TokensAway(next_use, 0, other) < TokensAway(next_use, 0, first))) first = other;
    }
    foreseen += first == (expert + 3) % kExperts;
  }
  return static_cast<double>(foreseen) / kCounted;
}

TEST(NextUsePairs, AnExpertTellsWhatFollowsIt) {
  EXPECT_GT(ShareForeseen(1 << 16), .8);
  EXPECT_LT(ShareForeseen(0), .5) << "without room for the pairs there is nothing to tell by";
}

// One expert a layer and token: any in the first layer, in the third the one that follows the first layer's of the token before.
class AcrossLayers {
 public:
  explicit AcrossLayers(size_t table_bytes) : next_use_(Shape(table_bytes)) {}

  // The share of tokens after which the third layer's next expert is the one expected first.
  double ShareForeseen(int tokens) {
    int foreseen = 0;
    for (int i = 0; i < tokens; ++i) {
      const int32_t first = Random(), third = Following(first_before_);
      Learn(next_use_, Routing(kFirst, {first}).Get());
      Learn(next_use_, Routing(kThird, {third}).Get());
      first_before_ = first;
      int32_t nearest = 0;
      for (int32_t e = 1; e < kExperts; ++e) {
        if (TokensAway(next_use_, 2, e) < TokensAway(next_use_, 2, nearest)) nearest = e;
      }
      foreseen += nearest == Following(first);
    }
    return static_cast<double>(foreseen) / tokens;
  }
  // Where the third layer's experts have nothing to do with the first's.
  void Prompt(int tokens) {
    for (const LayerId layer : {kFirst, kThird}) {
      std::vector<ExpertChoice> choices;
      for (int i = 0; i < tokens; ++i) choices.push_back({Random(), 0.7f});
      std::vector<TokenRouting> routing;
      for (const ExpertChoice& choice : choices) routing.push_back({kSession, TokenId(1), Phase::kPrefill, {&choice, 1}});
      Learn(next_use_, {layer, routing});
      first_before_ = layer == kFirst ? choices.back().expert : first_before_;
    }
  }

 private:
  static ExpertModelShape Shape(size_t table_bytes) {
    ExpertModelShape shape = StoreContext();
    shape.top_k = 1;
    shape.table_bytes = table_bytes;
    return shape;
  }
  static int32_t Following(int32_t expert) { return (expert + 3) % kExperts; }
  int32_t Random() { return static_cast<int32_t>(random_() % kExperts); }

  NextUse next_use_;
  std::mt19937 random_{5};
  int32_t first_before_ = 0;
};

TEST(NextUsePairs, AnExpertTellsOfAnotherLayersNextToken) {
  AcrossLayers told(1 << 16), untold(0);
  told.ShareForeseen(4000);
  untold.ShareForeseen(4000);
  EXPECT_GT(told.ShareForeseen(500), .9);
  EXPECT_LT(untold.ShareForeseen(500), .3) << "without room for the pairs there is nothing to tell by";
  for (int prompt = 0; prompt < 10; ++prompt) told.Prompt(64);
  EXPECT_GT(told.ShareForeseen(500), .9) << "prompts, where layers do not take turns, teach nothing of other layers";
}

}  // namespace next_use_test
}  // namespace moed
