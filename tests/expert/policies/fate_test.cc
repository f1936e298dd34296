#include "core/expert/policies/fate.h"

#include <random>

#include "tests/expert/policy_rig.h"

namespace moed {
namespace policies_fate_test {

const LayerId kMoeLayers[] = {LayerId(1), LayerId(2), LayerId(3), LayerId(4), LayerId(5)};
constexpr int kLayerExperts = 4;
constexpr uint64_t kRecordBytes[] = {10};
constexpr int kShallow = 2;

CachedKey Key(int layer, int expert) { return {LayerId(layer), expert}; }

// Two shallow layers of five, four experts in each.
UnitCache MakeCache(int records, int shallow = kShallow) {
  const ExpertModelShape context{kMoeLayers, kLayerExperts, 2, 1, kRecordBytes, records * kRecordBytes[0]};
  return {MakeFatePolicy(context, shallow), static_cast<size_t>(records), kRecordBytes[0]};
}
std::vector<int> PerLayer(const UnitCache& cache) {
  std::vector<int> counts(std::size(kMoeLayers));
  for (const CachedKey& key : cache.residents()) ++counts[key.layer.value() - 1];
  return counts;
}
void RunTokens(UnitCache& cache, int tokens, unsigned seed) {
  std::mt19937 random(seed);
  for (int token = 0; token < tokens; ++token) {
    for (const LayerId layer : kMoeLayers) {
      const int first = static_cast<int>(random() % kLayerExperts);
      cache.Use({layer, first});
      cache.Use({layer, (first + 1 + static_cast<int>(random() % 3)) % kLayerExperts});
    }
  }
}

TEST(FatePolicy, ShallowLayersWholeTheOthersEqualParts) {
  // (17 - 2 * 4) / 3 = 3 records a deep layer; 14: 2; 11: 1.
  for (const auto& [records, deep] : {std::pair(17, 3), std::pair(14, 2), std::pair(11, 1)}) {
    UnitCache cache = MakeCache(records);
    RunTokens(cache, 60, records);
    EXPECT_EQ(PerLayer(cache), (std::vector{4, 4, deep, deep, deep})) << records;
  }
}

// Too little for both: the first whole, the second with what is left. What a deep layer uses is borrowed from there.
TEST(FatePolicy, TooLittleFillsTheFirstInOrder) {
  UnitCache cache = MakeCache(7);
  RunTokens(cache, 60, 1);
  const std::vector<int> counts = PerLayer(cache);
  EXPECT_EQ(counts[0], 4);
  EXPECT_EQ(counts[1] + counts[2] + counts[3] + counts[4], 3);
  // Once only the shallow are used, they hold what is theirs.
  for (int expert = 0; expert < 4; ++expert) cache.Use(Key(1, expert));
  for (int expert = 0; expert < 3; ++expert) cache.Use(Key(2, expert));
  EXPECT_EQ(PerLayer(cache), (std::vector{4, 3, 0, 0, 0}));
  cache.Use(Key(5, 0));
  EXPECT_EQ(PerLayer(cache), (std::vector{4, 2, 0, 0, 1}));
  cache.Use(Key(3, 0));  // what another deep layer borrowed goes first
  EXPECT_EQ(PerLayer(cache), (std::vector{4, 2, 1, 0, 0}));
  cache.Use(Key(3, 1));  // its own
  EXPECT_EQ(PerLayer(cache), (std::vector{4, 2, 1, 0, 0}));
}

TEST(FatePolicy, ALayerBelowItsQuotaTakesFromTheOneMostAbove) {
  UnitCache cache = MakeCache(14);  // 4, 4, 2, 2, 2
  for (const int layer : {3, 4, 5}) {
    for (int expert = 0; expert < 4; ++expert) cache.Use(Key(layer, expert));
  }
  for (int expert = 0; expert < 2; ++expert) cache.Use(Key(1, expert));
  ASSERT_EQ(PerLayer(cache), (std::vector{2, 0, 4, 4, 4}));
  cache.Use(Key(2, 0));  // of equals the deeper one
  EXPECT_EQ(PerLayer(cache), (std::vector{2, 1, 4, 4, 3}));
  cache.Use(Key(2, 1));
  EXPECT_EQ(PerLayer(cache), (std::vector{2, 2, 4, 3, 3}));
}

TEST(FatePolicy, InsideALayerTheGhostsTeach) {
  UnitCache cache = MakeCache(14);
  for (int expert = 0; expert < 4; ++expert) {
    cache.Use(Key(1, expert));
    cache.Use(Key(2, expert));
  }
  for (const int layer : {3, 4, 5}) {
    cache.Use(Key(layer, 0));
    cache.Use(Key(layer, 0));
    cache.Use(Key(layer, 1));
  }
  cache.Use(Key(3, 2));  // 1 was used once: leaves T1 for B1, as in the paper's cache of two
  EXPECT_TRUE(cache.Has(Key(3, 0)));
  EXPECT_FALSE(cache.Has(Key(3, 1)));
  cache.Use(Key(3, 1));  // B1 hit
  EXPECT_TRUE(cache.Has(Key(3, 2)));
  EXPECT_FALSE(cache.Has(Key(3, 0)));
  EXPECT_EQ(PerLayer(cache), (std::vector{4, 4, 2, 2, 2}));
}

TEST(FatePolicy, PinnedLayersGiveNothing) {
  UnitCache cache = MakeCache(14);
  RunTokens(cache, 30, 3);
  auto& policy = cache.policy();
  const Incoming incoming{Key(3, 1), 10, LoadReason::kDemand, LayerId(3)};
  for (const int only : {1, 2, 3, 4, 5}) {
    const auto victim = policy.Victim(incoming, [only](CachedKey key) { return key.layer.value() == only; });
    ASSERT_TRUE(victim);
    EXPECT_EQ(victim->layer, LayerId(only));
  }
  EXPECT_EQ(policy.Victim(incoming, [](CachedKey) { return false; }), std::nullopt);
}

TEST(FatePolicy, AllLayersMayBeShallow) {
  for (const int shallow : {5, 50}) {
    UnitCache cache = MakeCache(18, shallow);
    RunTokens(cache, 60, 4);
    const std::vector<int> counts = PerLayer(cache);
    EXPECT_EQ(counts, (std::vector{4, 4, 4, 4, 2}));
  }
}

}  // namespace policies_fate_test
}  // namespace moed
