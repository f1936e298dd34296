// Weights of pairs of experts, by hand.
#include "core/expert/learning/pair_weights.h"

#include <set>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace pair_weights_test {

std::vector<float> Row(const PairWeights& weights, size_t distance, int position, size_t from) {
  std::vector<float> log_odds(kExperts);
  weights.Add(distance, position, from, 1, log_odds);
  return log_odds;
}

TEST(PairWeights, DistancesSpreadOverATokenAndAreAllDifferent) {
  std::vector<LayerId> layers;
  for (int layer = 0; layer < 24; ++layer) layers.emplace_back(layer);
  const ExpertModelShape shape{layers, kExperts, kTopK, 1};
  const PairWeights four(shape, 4), most(shape, 100);
  EXPECT_EQ(four.memory_bytes(), 4 * PairWeights::Bytes(shape));
  const int sources[] = {5, 17, 23, 11};  // 0, 12, 6 and 18 layers before
  for (size_t distance = 0; distance < 4; ++distance) {
    EXPECT_EQ(four.Source(distance, 5), sources[distance]);
    EXPECT_EQ(most.Source(distance, 5), sources[distance]) << "the first ones are the same";
  }
  ASSERT_EQ(most.distances(), 24u);
  std::set<int> all;
  for (size_t distance = 0; distance < 24; ++distance) all.insert(most.Source(distance, 5));
  EXPECT_EQ(all.size(), 24u);
}

TEST(PairWeights, DistancesMayBeNamed) {
  const PairWeights passed(StoreContext(), std::vector<size_t>{1, 2});
  EXPECT_EQ(passed.distances(), 2u);
  EXPECT_EQ(passed.memory_bytes(), 2 * PairWeights::Bytes(StoreContext()));
  EXPECT_EQ(passed.Source(0, 2), 1);
  EXPECT_EQ(passed.Source(1, 2), 0);
}

TEST(PairWeights, ARowMovesByTheErrorsAndStaysInItsRange) {
  PairWeights weights(StoreContext(), 2);
  std::vector<float> errors(kExperts);
  errors[2] = 0.5f;
  errors[3] = -1;
  weights.Learn(1, 2, 4, 0.25f, errors);
  const std::vector<float> row = Row(weights, 1, 2, 4);
  EXPECT_EQ(row[2], 0.125f);
  EXPECT_EQ(row[3], -0.25f);
  EXPECT_EQ(row[0], 0);
  for (const auto& [distance, position, from] : {std::tuple{0u, 2, 4u}, {1u, 1, 4u}, {1u, 2, 3u}}) {
    EXPECT_EQ(Row(weights, distance, position, from), std::vector<float>(kExperts)) << "nobody else's";
  }
  for (int i = 0; i < 100; ++i) weights.Learn(1, 2, 4, 1, errors);
  EXPECT_NEAR(Row(weights, 1, 2, 4)[2], 8, 1e-3);
  EXPECT_NEAR(Row(weights, 1, 2, 4)[3], -8, 1e-3);
}

TEST(PairWeights, WithoutRoomAllAreZero) {
  PairWeights none(StoreContext(), 0);
  none.Learn(0, 1, 2, 1, std::vector<float>(kExperts, 1.f));
  EXPECT_EQ(Row(none, 0, 1, 2), std::vector<float>(kExperts));
  EXPECT_EQ(none.memory_bytes(), 0u);
}

TEST(PairWeights, AFileOfAnotherBudgetIsTakenUpAsFarAsThereIsRoom) {
  const TemporaryFolder folder;
  const LearnedFile file{folder / "pairs", 1, "parts"};
  PairWeights three(StoreContext(), 3);
  for (size_t distance = 0; distance < 3; ++distance) {
    three.Learn(distance, 1, 2, 0.25f * static_cast<float>(distance + 1), std::vector<float>(kExperts, 1.f));
  }
  ASSERT_TRUE(SaveLearned(file, [&](LearnedState& state) { three.VisitLearned(state); }).ok());
  for (const size_t distances : {size_t{0}, size_t{2}, size_t{3}}) {
    PairWeights other(StoreContext(), distances);
    ASSERT_TRUE(TakeLearned(file, [&](LearnedState& state) { other.VisitLearned(state); }).ok());
    for (size_t distance = 0; distance < distances; ++distance) {
      for (int position = 0; position < 3; ++position) {
        EXPECT_EQ(Row(other, distance, position, 2), Row(three, distance, position, 2)) << distances << " " << distance;
      }
    }
  }
}

}  // namespace pair_weights_test
}  // namespace moed
