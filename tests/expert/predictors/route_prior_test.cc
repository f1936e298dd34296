#include "core/expert/predictors/route_prior.h"

#include <cmath>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace {

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

}  // namespace
}  // namespace moed
