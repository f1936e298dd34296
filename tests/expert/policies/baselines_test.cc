#include <map>

#include "tests/expert/policy_rig.h"

namespace moed {
namespace baselines_test {

const LayerId kOneLayer[] = {LayerId(0)};
CachedKey Key(int expert, int precision = 0) { return {LayerId(0), expert, static_cast<Precision>(precision)}; }
std::unique_ptr<EvictionPolicy> Make(std::string_view name) { return MakePolicy(name, {{kOneLayer, 16, 4, 2}}).value(); }
const Incoming kIncoming{{LayerId(0), 15}, 1, LoadReason::kDemand, LayerId(0)};

TEST(FifoPolicy, UsesChangeNothing) {
  UnitCache cache(Make("fifo"), 3);
  for (const int expert : {0, 1, 2, 0, 0, 1}) cache.Use(Key(expert));
  cache.Use(Key(3));
  EXPECT_EQ(cache.residents(), (std::set{Key(1), Key(2), Key(3)}));
  cache.Use(Key(0, 1));  // another precision is another record
  EXPECT_EQ(cache.residents(), (std::set{Key(0, 1), Key(2), Key(3)}));
  EXPECT_EQ(cache.policy().Victim(kIncoming, [](CachedKey k) { return k.expert != 2; }), Key(3));
}

TEST(RandomPolicy, EveryEvictableResidentIsAsLikely) {
  auto policy = Make("random");
  for (int expert = 0; expert < 12; ++expert) policy->OnInsert(Key(expert), 1);
  policy->OnEvict(Key(3));
  std::map<CachedKey, int> drawn;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const auto victim = policy->Victim(kIncoming, [](CachedKey k) { return k.expert % 3 == 0; });
    ASSERT_TRUE(victim);
    ++drawn[*victim];
  }
  ASSERT_EQ(drawn.size(), 3u);  // 0, 6 and 9
  for (const auto& [key, times] : drawn) EXPECT_NEAR(times, kDraws / 3, 200) << key.expert;
}

TEST(RandomPolicy, EveryRunDrawsTheSame) {
  UnitCache first(Make("random"), 5), second(Make("random"), 5);
  for (int i = 0; i < 100; ++i) {
    first.Use(Key(i * 7 % 16));
    second.Use(Key(i * 7 % 16));
    ASSERT_EQ(first.residents(), second.residents());
  }
}

}  // namespace baselines_test
}  // namespace moed
