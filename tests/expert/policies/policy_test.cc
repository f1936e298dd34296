#include <random>
#include <set>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace policy_test {

CachedKey Key(int layer, int expert) { return {LayerId(layer), expert}; }
const auto kAny = [](CachedKey) { return true; };

std::optional<CachedKey> VictimOf(EvictionPolicy& policy, absl::FunctionRef<bool(CachedKey)> evictable = kAny) {
  return policy.Victim({Key(3, 7), 4096, LoadReason::kDemand, LayerId(3)}, evictable);
}

TEST(Policies, UnknownNamesListTheKnownOnes) {
  const absl::Status status = MakePolicy("clairvoyant", {StoreContext()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageText(status),
              testing::AllOf(testing::HasSubstr("clairvoyant"), testing::HasSubstr("lru"), testing::HasSubstr("s3-fifo")));
  EXPECT_THAT(MessageText(MakePredictor("x", {}).status()), testing::HasSubstr("none, cross-layer-gate"));
  EXPECT_THAT(MessageText(MakeRouterMask("x", {StoreContext()}).status()), testing::HasSubstr("none"));
  EXPECT_THAT(MessageText(MakeFidelityRule("x", {.model = StoreContext()}).status()), testing::HasSubstr("exact"));
}

TEST(Policies, EveryRowIsMadeByItsName) {
  for (const PolicyRow& row : Policies()) EXPECT_TRUE(MakePolicy(row.name, StoreParts()).ok());
  for (const PredictorRow& row : Predictors()) {
    EXPECT_TRUE(MakePredictor(row.name, StoreParts()).ok());
  }
  for (const RouterMaskRow& row : RouterMasks()) EXPECT_TRUE(MakeRouterMask(row.name, StoreParts()).ok());
  for (const FidelityRow& row : FidelityRules()) {
    if (row.name == "widths") continue;  // needs a file
    EXPECT_TRUE(MakeFidelityRule(row.name, {.model = StoreContext()}).ok()) << row.name;
  }
}

TEST(Policies, EveryVictimIsInsertedAndEvictable) {
  for (const PolicyRow& row : Policies()) {
    SCOPED_TRACE(std::string(row.name));
    auto policy = MakePolicy(row.name, StoreParts()).value();
    policy->OnSequenceStart(kSession);
    std::mt19937_64 random(5);
    std::set<CachedKey> residents;
    for (int i = 0; i < 3000; ++i) {
      const CachedKey key{kLayers[random() % 3], static_cast<int32_t>(random() % kExperts), static_cast<Precision>(random() % 2)};
      policy->OnAccess(key, {.sequence = kSession});
      if (residents.insert(key).second) policy->OnInsert(key, 4096);
      if (random() % 3 != 0) continue;
      const CachedKey pinned = *std::next(residents.begin(), random() % residents.size());
      const auto victim = VictimOf(*policy, [&](CachedKey k) { return k != pinned; });
      EXPECT_EQ(victim.has_value(), residents.size() > 1);
      if (!victim) continue;
      EXPECT_NE(*victim, pinned);
      ASSERT_EQ(residents.erase(*victim), 1u);
      policy->OnEvict(*victim);
    }
  }
}

// What residents' bytes are to a policy that was told of another size: as to one that was made for it.
TEST(Policies, ToldOfASizeTheyAreAsMadeForIt) {
  const uint64_t record = ExpertStore::Get().record_bytes();
  for (const PolicyRow& row : Policies()) {
    if (!row.mask.empty()) continue;  // its plan is fixed
    SCOPED_TRACE(std::string(row.name));
    auto told = MakePolicy(row.name, StoreParts(20)).value(), made = MakePolicy(row.name, StoreParts(7)).value();
    ASSERT_TRUE(told->SetCapacity(7 * record).ok());
    for (auto* policy : {told.get(), made.get()}) policy->OnSequenceStart(kSession);
    std::mt19937_64 random(9);
    std::set<CachedKey> residents;
    for (int i = 0; i < 1000; ++i) {
      const CachedKey key{kLayers[random() % 3], static_cast<int32_t>(random() % kExperts), static_cast<Precision>(random() % 2)};
      const bool comes = residents.insert(key).second;
      for (auto* policy : {told.get(), made.get()}) {
        policy->OnAccess(key, {.sequence = kSession});
        if (comes) policy->OnInsert(key, record);
      }
      if (residents.size() <= 7) continue;
      const auto victim = VictimOf(*told);
      ASSERT_EQ(victim, VictimOf(*made));
      if (!victim) continue;
      residents.erase(*victim);
      for (auto* policy : {told.get(), made.get()}) policy->OnEvict(*victim);
    }
  }
}

TEST(LruPolicy, EvictsTheOldestUseOfAnySequence) {
  auto policy = MakePolicy("lru", {StoreContext()}).value();
  policy->OnSequenceStart(SequenceId(1));
  policy->OnSequenceStart(SequenceId(2));
  for (int e = 0; e < 3; ++e) policy->OnInsert(Key(0, e), 4096);
  policy->OnInsert(Key(2, 0), 4096);
  policy->OnAccess(Key(0, 0), {.sequence = SequenceId(1)});
  policy->OnAccess(Key(0, 1), {.sequence = SequenceId(2)});
  policy->OnAccess(Key(0, 5), {.sequence = SequenceId(2)});  // absent: no effect
  EXPECT_EQ(VictimOf(*policy), Key(0, 2));
  EXPECT_EQ(VictimOf(*policy, [](CachedKey k) { return k != Key(0, 2); }), Key(2, 0));
  policy->OnEvict(Key(0, 2));
  policy->OnEvict(Key(2, 0));
  EXPECT_EQ(VictimOf(*policy), Key(0, 0));
  policy->OnEvict(Key(0, 0));
  EXPECT_EQ(VictimOf(*policy), Key(0, 1));
  policy->OnEvict(Key(0, 1));
  EXPECT_EQ(VictimOf(*policy), std::nullopt);
}

TEST(LfuPolicy, EvictsTheFewestUsesThenTheOldest) {
  auto policy = MakePolicy("lfu", {StoreContext()}).value();
  policy->OnSequenceStart(kSession);
  for (int e = 0; e < 4; ++e) policy->OnInsert(Key(0, e), 4096);
  const auto use = [&](int expert, int times) {
    for (int i = 0; i < times; ++i) policy->OnAccess(Key(0, expert), {.sequence = kSession});
  };
  use(0, 3);
  use(2, 1);
  use(1, 1);
  use(3, 2);
  EXPECT_EQ(VictimOf(*policy), Key(0, 2));  // as few uses as 1, longer ago
  policy->OnEvict(Key(0, 2));
  EXPECT_EQ(VictimOf(*policy), Key(0, 1));
  policy->OnEvict(Key(0, 1));
  EXPECT_EQ(VictimOf(*policy), Key(0, 3));
  // Uses outlive the stay: 2 returns with one use, 5 is new and used twice.
  policy->OnInsert(Key(0, 2), 4096);
  use(5, 2);
  policy->OnInsert(Key(0, 5), 4096);
  EXPECT_EQ(VictimOf(*policy), Key(0, 2));
}

TEST(LfuPolicy, CountsLiveWithTheirSequence) {
  auto policy = MakePolicy("lfu", {StoreContext()}).value();
  const SequenceId first(1), second(2);
  policy->OnSequenceStart(first);
  policy->OnInsert(Key(0, 0), 4096);
  policy->OnInsert(Key(0, 1), 4096);
  for (int i = 0; i < 3; ++i) policy->OnAccess(Key(0, 0), {.sequence = first});
  policy->OnSequenceStart(second);  // does not touch the counts of `first`
  for (int i = 0; i < 2; ++i) policy->OnAccess(Key(0, 1), {.sequence = second});
  EXPECT_EQ(VictimOf(*policy), Key(0, 1));
  policy->OnAccess(Key(0, 1), {.sequence = first});
  policy->OnAccess(Key(0, 1), {.sequence = second});
  EXPECT_EQ(VictimOf(*policy), Key(0, 0));  // 3 against 1 + 3
  policy->OnSequencePause(second);
  EXPECT_EQ(VictimOf(*policy), Key(0, 1));  // 3 against 1
  policy->OnAccess(Key(0, 1), {.sequence = second});
  EXPECT_EQ(VictimOf(*policy), Key(0, 0));  // 3 against 1 + 4
  policy->OnSequenceEnd(second);
  EXPECT_EQ(VictimOf(*policy), Key(0, 1));  // 3 against 1
  policy->OnSequenceEnd(first);
  policy->OnSequenceStart(second);
  EXPECT_EQ(VictimOf(*policy), Key(0, 0));  // nobody counts: the older use
}

}  // namespace policy_test
}  // namespace moed
