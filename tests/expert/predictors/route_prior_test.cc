#include "core/expert/predictors/route_prior.h"

#include <cmath>
#include <random>
#include <set>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace route_prior_test {

ExpertModelShape Shape(size_t table_bytes = 1 << 16) {
  ExpertModelShape shape = StoreContext();
  shape.top_k = 2;
  shape.table_bytes = table_bytes;
  return shape;
}

// One token through all layers: experts `first` and `second` of every layer, asked before each.
class Walk {
 public:
  explicit Walk(size_t table_bytes = 1 << 16) : prior_(Shape(table_bytes)), sequence_(prior_.Start()) {}

  void Token(int token, int32_t first, int32_t second) {
    const ExpertChoice choices[] = {{first, .7f}, {second, .3f}};
    const TokenRouting routing{.sequence = kSession, .token = TokenId(token), .choices = choices};
    for (int position = 0; position < 3; ++position) {
      prior_.Learn(position, routing, sequence_);
      if (position == 0) prior_.Score(sequence_, 1);
    }
  }
  // Of the layer after the first, once a token like the last one has passed that.
  std::vector<float> Odds(int token, int32_t first, int32_t second) {
    const ExpertChoice choices[] = {{first, .7f}, {second, .3f}};
    prior_.Learn(0, {.sequence = kSession, .token = TokenId(token), .choices = choices}, sequence_);
    prior_.Score(sequence_, 1);
    std::vector<float> odds(kExperts);
    prior_.ScoreNext(sequence_, 1, odds);
    return odds;
  }

  RoutePrior& prior() { return prior_; }
  RoutePrior::Sequence& sequence() { return sequence_; }

 private:
  RoutePrior prior_;
  RoutePrior::Sequence sequence_;
};

TEST(RoutePrior, EveryoneIsAlikeBeforeAnythingWasSeen) {
  Walk walk;
  walk.sequence().token = TokenId(1);
  walk.prior().Score(walk.sequence(), 0);
  std::vector<float> odds(kExperts);
  walk.prior().ScoreNext(walk.sequence(), 1, odds);
  for (const float value : odds) EXPECT_FLOAT_EQ(value, odds[0]);
  EXPECT_EQ(walk.prior().occurrences(walk.sequence()), 0);
}

// Which pass the last two of the three layers.
TEST(RoutePrior, KnowsTheTokensOfAnEncoderDecodersAnswers) {
  ExpertModelShape shape = Shape();
  shape.encoder_layers = 1;
  RoutePrior prior(shape);
  RoutePrior::Sequence sequence = prior.Start();
  const ExpertChoice choices[] = {{1, .7f}, {2, .3f}};
  const TokenRouting routing{.sequence = kSession, .token = TokenId(5), .choices = choices};
  for (int i = 0; i < 3; ++i) {
    for (int position = 1; position < 3; ++position) prior.Learn(position, routing, sequence);
    EXPECT_EQ(prior.occurrences(sequence), i + 1);
  }
}

TEST(RoutePrior, ATokenThatComesAgainBringsItsExperts) {
  Walk walk;
  for (int i = 0; i < 60; ++i) walk.Token(i % 2, i % 2 == 0 ? 1 : 5, i % 2 == 0 ? 2 : 6);
  const std::vector<float> even = walk.Odds(0, 1, 2);
  EXPECT_GT(walk.prior().occurrences(walk.sequence()), 0);
  for (const int used : {1, 2}) {
    for (const int other : {0, 3, 4, 5, 6, 7}) EXPECT_GT(even[used], even[other]) << used << " and " << other;
  }
}

// The same token, the layer before says which of two ways it went.
TEST(RoutePrior, TheLayerBeforeTells) {
  const auto gap = [](size_t table_bytes) {
    Walk walk(table_bytes);
    for (int i = 0; i < 200; ++i) walk.Token(7, i % 3 == 0 ? 1 : 5, i % 3 == 0 ? 2 : 6);
    RoutePrior::Sequence copy = walk.sequence();
    const std::vector<float> one = walk.Odds(7, 1, 2);
    walk.sequence() = copy;
    return one[1] - one[5];
  };
  EXPECT_GT(gap(1 << 16), 0);
  EXPECT_LT(gap(0), gap(1 << 16)) << "without room for the pairs there is less to tell by";
}

// The same token; its first layer alone says which of two ways its last one goes, and goes either way by chance.
TEST(RoutePrior, LayersPassedBeforeTellAsSoonAsTheyPass) {
  RoutePrior prior(Shape());
  RoutePrior::Sequence sequence = prior.Start();
  const auto learn = [&](int position, int32_t expert) {
    const ExpertChoice choices[] = {{expert, .6f}, {expert + 1, .4f}};
    prior.Learn(position, {.sequence = kSession, .token = TokenId(7), .choices = choices}, sequence);
  };
  const auto gap = [&](int32_t right) {
    std::vector<float> odds(kExperts);
    prior.ScoreNext(sequence, 2, odds);
    return odds[static_cast<size_t>(right)] - odds[static_cast<size_t>(7 - right)];
  };
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    const int32_t way = random() % 2 == 0 ? 0 : 6;
    learn(0, way);
    prior.Score(sequence, 1);
    const float early = gap(way == 0 ? 1 : 6);
    learn(1, 3);
    const float late = gap(way == 0 ? 1 : 6);
    if (i > 500) {
      EXPECT_GT(early, 0.5f) << "before the layer between was routed";
      EXPECT_GT(late, 0.5f) << "after it";
    }
    learn(2, way);
  }
}

// Who asks late, when layers have passed already, is told the same.
TEST(RoutePrior, WhatPassedBeforeScoringTellsToo) {
  Walk walk;
  for (int i = 0; i < 50; ++i) walk.Token(i % 5, i % 8, (i + 3) % 8);
  const ExpertChoice choices[] = {{1, .7f}, {2, .3f}};
  const auto odds_scored_at = [&](int first) {
    RoutePrior::Sequence sequence = walk.sequence();
    for (int position = 0; position < 2; ++position) {
      walk.prior().Learn(position, {.sequence = kSession, .token = TokenId(99), .choices = choices}, sequence);
      if (position + 1 == first) walk.prior().Score(sequence, first);
    }
    std::vector<float> odds(kExperts);
    walk.prior().ScoreNext(sequence, 2, odds);
    return odds;
  };
  // Weights move a little at the second layer, where it was foreseen.
  const std::vector<float> late = odds_scored_at(2), soon = odds_scored_at(1);
  for (size_t e = 0; e < kExperts; ++e) EXPECT_NEAR(late[e], soon[e], 0.05f);
}

TEST(RoutePrior, SequencesThatShareAStepTellOneChoiceAtLeast) {
  const auto odds = [](size_t sequences) {
    Walk walk;
    walk.prior().ShareAmong(sequences);
    std::mt19937 random(4);
    for (int i = 0; i < 200; ++i) walk.Token(7, static_cast<int32_t>(random() % 4), 4 + static_cast<int32_t>(random() % 4));
    walk.Odds(7, 1, 5);
    return std::vector<float>(walk.sequence().logits.begin() + 2 * kExperts, walk.sequence().logits.end());
  };
  EXPECT_EQ(odds(0), odds(1));
  EXPECT_NE(odds(1), odds(2)) << "of two choices one";
  EXPECT_EQ(odds(2), odds(100));
}

TEST(RoutePrior, KeepsWhatItSaidAtADistance) {
  Walk walk;
  for (int i = 0; i < 4; ++i) walk.Token(i, 1, 2);
  const ExpertChoice choices[] = {{1, .7f}, {2, .3f}};
  RoutePrior::Sequence& sequence = walk.sequence();
  std::set<uint32_t> kinds;
  for (int i = 0; i < 4; ++i) {
    walk.Odds(i, 1, 2);
    EXPECT_EQ(sequence.kept[1], 0u) << "the next layer is at no distance";
    kinds.insert(sequence.kept[2]);
    if (sequence.kept[2] != 0) {
      const std::vector<float> at_distance(sequence.logits.begin() + 2 * kExperts, sequence.logits.end());
      walk.prior().Learn(1, {.sequence = kSession, .token = TokenId(i), .choices = choices}, sequence);
      EXPECT_EQ(std::vector<float>(sequence.early.begin() + 2 * kExperts, sequence.early.end()), at_distance);
    }
  }
  EXPECT_EQ(kinds, (std::set<uint32_t>{0, 2})) << "of 2 kinds of distances one after the other; nothing is beyond the second";
}

TEST(RoutePrior, IsBoundedAndSaysItsSize) {
  for (const size_t table_bytes : {size_t{0}, size_t{1} << 12, size_t{1} << 16}) {
    const RoutePrior prior(Shape(table_bytes));
    EXPECT_GE(prior.memory_bytes(), RoutePrior::BytesWithoutTable(Shape()));
    EXPECT_LE(prior.memory_bytes(), RoutePrior::BytesWithoutTable(Shape()) + table_bytes);
    EXPECT_EQ(prior.sequence_bytes(), RoutePrior::SequenceBytes(Shape()));
  }
}

TEST(RoutePrior, IsDeterministic) {
  Walk one, other;
  for (Walk* walk : {&one, &other}) {
    for (int i = 0; i < 50; ++i) walk->Token(i % 5, i % 8, (i + 3) % 8);
  }
  EXPECT_EQ(one.Odds(3, 1, 2), other.Odds(3, 1, 2));
}

}  // namespace route_prior_test
}  // namespace moed
