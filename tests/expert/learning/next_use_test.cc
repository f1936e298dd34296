// What is learned about the next use of experts, by hand-made sequences.
#include "core/expert/learning/next_use.h"

#include <cmath>
#include <random>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace {

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
    for (const auto& [token, experts] : tokens) next_use.OnToken(kSession, token);
    for (const LayerId layer : kLayers) {
      std::vector<std::vector<ExpertChoice>> choices;
      std::vector<TokenRouting> routing;
      for (const auto& [token, experts] : tokens) {
        choices.emplace_back();
        for (const int32_t expert : experts) choices.back().push_back({expert, 0.25f});
      }
      for (size_t i = 0; i < tokens.size(); ++i) routing.push_back({kSession, tokens[i].first, phase, choices[i]});
      Learn(next_use, {layer, routing});
    }
  }
};

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
    next_use.OnToken(kSession, TokenId(1));
    next_use.OnToken(other, TokenId(2));
    for (const LayerId layer : kLayers) {
      Routing routing(layer, {0, 1});
      routing.Add(other, {2, 3});
      Learn(next_use, routing.Get());
    }
  }
  for (const int32_t used : {0, 1, 2, 3}) EXPECT_LT(TokensAway(next_use, 1, used), 1);
  for (const int32_t unused : {4, 5, 6, 7}) EXPECT_GT(TokensAway(next_use, 1, unused), 4);
  next_use.OnSequenceEnd(other);
  next_use.OnSequenceEnd(other);  // an unknown one is nobody
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
    next_use.OnToken(kSession, TokenId(1));
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

}  // namespace
}  // namespace moed
