#include <deque>
#include <random>
#include <set>

#include "tests/expert/policy_rig.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace policies_learned_test {

// Tokens through a cache that asks `policy` as the real one does. Returns the hit ratio of the second half.
class Replay {
 public:
  Replay(std::string_view name, size_t capacity) : policy_(MakePolicy(name, {StoreContext()}).value()), capacity_(capacity) {
    policy_->OnSequenceStart(kSession);
  }

  double Run(int tokens, const std::function<std::vector<int32_t>(int token, LayerId layer)>& choose) {
    int hits = 0, lookups = 0;
    for (int token = 0; token < tokens; ++token) {
      for (const LayerId layer : kLayers) {
        const std::vector<int32_t> wanted = choose(token, layer);
        const int found = Layer(layer, wanted, token);
        if (token < tokens / 2) continue;
        hits += found;
        lookups += static_cast<int>(wanted.size());
      }
    }
    return static_cast<double>(hits) / lookups;
  }

 private:
  int Layer(LayerId layer, const std::vector<int32_t>& wanted, int token) {
    int hits = 0;
    std::set<CachedKey> keys;
    for (const int32_t expert : wanted) keys.insert({layer, expert});
    for (const CachedKey& key : keys) {
      hits += residents_.contains(key);
      policy_->OnAccess(key, {.sequence = kSession, .hit = residents_.contains(key)});
    }
    for (const CachedKey& key : keys) {
      if (residents_.contains(key)) continue;
      if (residents_.size() == capacity_) {
        const auto victim = policy_->Victim({key, 1, LoadReason::kDemand, layer}, [&](CachedKey k) { return !keys.contains(k); });
        MOED_CHECK(victim && residents_.erase(*victim) == 1 && !keys.contains(*victim));
        policy_->OnEvict(*victim);
      }
      residents_.insert(key);
      policy_->OnInsert(key, 1);
    }
    std::vector<ExpertChoice> choices;
    for (const int32_t expert : wanted) choices.push_back({expert, 0.25f});
    TokenRouting routing[] = {{kSession, TokenId(token % 17), Phase::kDecode, choices}};
    if (token > 0) routing[0].before = TokenId((token - 1) % 17);
    policy_->Learn({layer, routing});
    policy_->OnRouted({layer, routing});
    return hits;
  }

  std::unique_ptr<EvictionPolicy> policy_;
  const size_t capacity_;
  std::set<CachedKey> residents_;
};

// Twelve records in a loop, room for eight: whoever evicts the least recently used never hits.
TEST(LearnedPolicy, KeepsMostOfALoopThatIsTooLong) {
  const auto loop = [](int, LayerId) { return std::vector<int32_t>{0, 1, 2, 3}; };
  EXPECT_EQ(Replay("lru", 8).Run(200, loop), 0);
  EXPECT_GT(Replay("learned", 8).Run(200, loop), 0.45);
}

TEST(LearnedPolicy, FavouritesSurviveThePassersBy) {
  const auto choose = [](int token, LayerId) { return std::vector<int32_t>{0, 1, 2, 3 + token % 5}; };
  EXPECT_EQ(Replay("lru", 8).Run(400, choose), 0);
  EXPECT_GT(Replay("learned", 8).Run(400, choose), 0.35);
}

TEST(LearnedPolicy, FollowsFavouritesThatChange) {
  const auto choose = [](int token, LayerId) {
    const int shift = token < 300 ? 0 : 4;
    return std::vector<int32_t>{shift, shift + 1, shift + 2, 3 + token % 2 + (shift == 0 ? 0 : -3)};
  };
  EXPECT_GT(Replay("learned", 11).Run(600, choose), 0.7);
}

// The favourite's low copy leaves first beside its reference, and last without it.
TEST(LearnedPolicy, ALowerCopyIsWorthNothingBesideTheReference) {
  auto policy = MakePolicy("learned", {StoreContext()}).value();
  policy->OnSequenceStart(kSession);
  for (int i = 0; i < 100; ++i) {
    Routing routing(kFirst, {0, 1 + i % 2});
    policy->Learn(routing.Get());
    policy->OnRouted(routing.Get());
  }
  const auto order = [&](std::set<CachedKey> residents) {
    std::vector<CachedKey> leaving;
    while (!residents.empty()) {
      leaving.push_back(*policy->Victim({{kFirst, 7}, 1, LoadReason::kDemand, kFirst}, [](CachedKey) { return true; }));
      policy->OnEvict(leaving.back());
      EXPECT_EQ(residents.erase(leaving.back()), 1u);
    }
    return leaving;
  };
  const CachedKey favourite{kFirst, 0}, low{kFirst, 0, 1}, other{kFirst, 1};
  for (const CachedKey& key : {low, other}) policy->OnInsert(key, 1);
  EXPECT_THAT(order({low, other}), testing::ElementsAre(other, low));
  for (const CachedKey& key : {low, other, favourite}) policy->OnInsert(key, 1);
  EXPECT_THAT(order({low, other, favourite}), testing::ElementsAre(low, other, favourite));
  for (const CachedKey& key : {favourite, low, other}) policy->OnInsert(key, 1);
  policy->OnEvict(favourite);
  EXPECT_THAT(order({low, other}), testing::ElementsAre(other, low)) << "the reference is gone";
}

TEST(LearnedPolicy, ItsVictimIsAnEvictableResident) {
  auto policy = MakePolicy("learned", {StoreContext()}).value();
  std::mt19937 random(9);
  std::set<CachedKey> residents;
  const SequenceId sessions[] = {SequenceId(1), SequenceId(2), SequenceId(3)};
  for (const SequenceId sequence : sessions) policy->OnSequenceStart(sequence);
  const size_t bytes = policy->memory_bytes();
  EXPECT_GT(bytes, 0u);
  for (int i = 0; i < 5000; ++i) {
    const CachedKey key{kLayers[random() % 3], static_cast<int32_t>(random() % kExperts), static_cast<Precision>(random() % 2)};
    if (residents.insert(key).second) policy->OnInsert(key, 1);
    const LayerId layer = kLayers[i % 3];
    Routing routing(layer);
    for (const SequenceId sequence : sessions) routing.Add(sequence, {static_cast<int32_t>(random() % kExperts)});
    policy->Learn(routing.Get());
    policy->OnRouted(routing.Get());
    std::set<CachedKey> allowed;
    for (const CachedKey& resident : residents) {
      if (random() % 3 == 0) allowed.insert(resident);
    }
    const auto victim = policy->Victim({key, 1, LoadReason::kDemand, layer}, [&](CachedKey k) { return allowed.contains(k); });
    ASSERT_EQ(victim.has_value(), !allowed.empty());
    if (!victim) continue;
    ASSERT_TRUE(allowed.contains(*victim));
    if (residents.size() > 12) {
      residents.erase(*victim);
      policy->OnEvict(*victim);
    }
  }
  for (const SequenceId sequence : sessions) policy->OnSequenceEnd(sequence);
  EXPECT_EQ(policy->memory_bytes(), bytes);
}

TEST(LearnedPolicy, GuessesTakeNothingThatIsNeededWithinAToken) {
  auto policy = MakePolicy("learned", {StoreContext()}).value();
  policy->OnSequenceStart(kSession);
  const CachedKey favourite{kLayers[1], 0}, stranger{kLayers[1], 7};
  policy->OnInsert(favourite, 1);
  for (int i = 0; i < 200; ++i) {
    for (const LayerId layer : kLayers) {
      Routing routing(layer, {0});
      policy->Learn(routing.Get());
      policy->OnRouted(routing.Get());
    }
  }
  const auto any = [](CachedKey) { return true; };
  const Incoming guess{{kLayers[1], 3}, 1, LoadReason::kPrefetch, kLayers[0]};
  EXPECT_EQ(policy->Victim(guess, any), std::nullopt);
  EXPECT_EQ(policy->Victim({guess.key, 1, LoadReason::kDemand, kLayers[0]}, any), favourite);
  policy->OnInsert(stranger, 1);
  EXPECT_EQ(policy->Victim(guess, any), stranger);
}

// Of two that every token uses it has one. Of the other it is sure, as of nobody else.
TEST(LearnedPolicy, WishesForWhoIsWorthMoreThanWhoWouldLeave) {
  auto policy = MakePolicy("learned", {StoreContext()}).value();
  policy->OnSequenceStart(kSession);
  const auto use = [&](int32_t expert) {
    for (const LayerId layer : kLayers) {
      Routing routing(layer, {expert, (expert + 1) % kExperts});
      policy->Learn(routing.Get());
      policy->OnRouted(routing.Get());
    }
  };
  for (int i = 0; i < 200; ++i) use(0);
  for (const LayerId layer : kLayers) policy->OnInsert({layer, 0}, 1);
  policy->OnInsert({kFirst, 7}, 1);  // nobody uses it
  const auto absent = [](CachedKey key) { return key != CachedKey{kFirst, 1} && key.expert != 0; };
  const auto wish = policy->Wish(kThird, 0, absent, kAnyKey);
  ASSERT_TRUE(wish.has_value());
  EXPECT_EQ(wish->expert, 1);
  EXPECT_NE(wish->layer, kFirst) << "it is there, or on its way";
  EXPECT_EQ(policy->Wish(kThird, 1, absent, kAnyKey), std::nullopt) << "nobody is as likely";
  EXPECT_EQ(policy->Wish(
                kThird, 0, [](CachedKey) { return false; }, kAnyKey),
            std::nullopt);
  const auto all_but_one = [](CachedKey key) { return key != CachedKey{kFirst, 7}; };
  EXPECT_EQ(policy->Wish(kThird, 0, absent, all_but_one), std::nullopt) << "who is worth nothing does not leave";
  policy->OnEvict({kFirst, 7});
  EXPECT_EQ(policy->Wish(kThird, 0, absent, kAnyKey), std::nullopt) << "who would leave is worth as much";
}

TEST(LearnedPolicy, WishesForNobodyWhereAllFitNorOfAnEncoder) {
  const auto likely = [](EvictionPolicy& policy) {
    policy.OnSequenceStart(kSession);
    for (int i = 0; i < 200; ++i) {
      Routing routing(kFirst, {0, 1});
      policy.Learn(routing.Get());
      policy.OnRouted(routing.Get());
    }
    return policy.Wish(kFirst, 0, kAnyKey, kAnyKey).has_value();
  };
  EXPECT_TRUE(likely(*MakePolicy("learned", {StoreContext(8)}).value()));
  EXPECT_FALSE(likely(*MakePolicy("learned", {StoreContext(48)}).value())) << "all fit";
  ExpertModelShape encodes = StoreContext(8);
  encodes.encoder_layers = 2;
  EXPECT_FALSE(likely(*MakePolicy("learned", {encodes}).value())) << "a request runs the encoder once";
}

}  // namespace policies_learned_test
}  // namespace moed
