#include "core/expert/policies/hobbit.h"

#include "tests/expert/policy_rig.h"

namespace moed {
namespace hobbit_test {

const LayerId kMoeLayers[] = {LayerId(0), LayerId(1), LayerId(2), LayerId(3)};
const SequenceId kUser(1), kOther(2);

CachedKey High(int layer, int expert) { return {LayerId(layer), expert, 0}; }
CachedKey Low(int layer, int expert) { return {LayerId(layer), expert, 1}; }

constexpr uint64_t kRecordBytes[] = {40, 10};
constexpr double kHighCache = 0.89;
ExpertModelShape Context(uint64_t capacity_bytes) { return {kMoeLayers, 8, 2, 2, kRecordBytes, capacity_bytes}; }
Incoming Demand(const CachedKey& key) { return {key, kRecordBytes[key.precision], LoadReason::kDemand, key.layer}; }

class Policy {
 public:
  explicit Policy(const HobbitWeights& weights, uint64_t capacity_bytes = 400)
      : policy_(MakeHobbitPolicy(Context(capacity_bytes), {weights, kHighCache})) {}
  EvictionPolicy& operator*() { return *policy_; }
  EvictionPolicy* operator->() { return policy_.get(); }

  void Tokens(SequenceId sequence, int count) {
    for (int i = 0; i < count; ++i) policy_->OnToken(sequence, TokenId(0));
  }
  void Use(const CachedKey& key, SequenceId sequence = kUser) { policy_->OnAccess(key, {.sequence = sequence}); }
  void Insert(std::initializer_list<CachedKey> keys) {
    for (const CachedKey& key : keys) policy_->OnInsert(key, kRecordBytes[key.precision]);
  }
  std::vector<CachedKey> Order(const Incoming& incoming, size_t count) {
    std::vector<CachedKey> order;
    while (order.size() < count) {
      const auto left = [&](CachedKey key) { return std::ranges::find(order, key) == order.end(); };
      const auto victim = policy_->Victim(incoming, left);
      if (!victim) break;
      order.push_back(*victim);
    }
    return order;
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
};

// Three experts of layer 1, T = 4:      R  F  H   R/T   F/T   H/T
constexpr int kRecent = 0;    //       4  1  1   1     0.25  0.25
constexpr int kFrequent = 1;  //       3  3  0   0.75  0.75  0
constexpr int kPrecise = 2;   //       2  2  2   0.5   0.5   0.5
void UseThree(Policy& policy) {
  policy->OnSequenceStart(kUser);
  policy.Insert({High(1, kRecent), High(1, kFrequent), High(1, kPrecise)});
  policy.Tokens(kUser, 1);
  policy.Use(Low(1, kFrequent));
  policy.Use(High(1, kPrecise));
  policy.Tokens(kUser, 1);
  policy.Use(Low(1, kFrequent));
  policy.Use(High(1, kPrecise));
  policy.Tokens(kUser, 1);
  policy.Use(Low(1, kFrequent));
  policy.Tokens(kUser, 1);
  policy.Use(High(1, kRecent));
}

TEST(HobbitPolicy, EachTermRanksByItsOwnRecord) {
  const struct {
    HobbitWeights weights;
    std::vector<int> order;
  } kCases[] = {{{1, 0, 0, 0}, {kPrecise, kFrequent, kRecent}},
                {{0, 1, 0, 0}, {kRecent, kPrecise, kFrequent}},
                {{0, 0, 1, 0}, {kFrequent, kRecent, kPrecise}},
                // 0.3 + 0.125 + 0.05 = 0.475; 0.225 + 0.375 + 0 = 0.6; 0.15 + 0.25 + 0.1 = 0.5.
                {{0.3, 0.5, 0.2, 0}, {kRecent, kPrecise, kFrequent}}};
  for (const auto& test : kCases) {
    Policy policy(test.weights);
    UseThree(policy);
    std::vector<CachedKey> expected;
    for (const int expert : test.order) expected.push_back(High(1, expert));
    EXPECT_EQ(policy.Order(Demand(High(1, 7)), 3), expected);
  }
}

// 1 - ((l_t - l_i + 4) mod 4) / 4 while layer 2 is computed: layer 2: 1, layer 3: 0.75, layer 0: 0.5, layer 1: 0.25.
TEST(HobbitPolicy, TheFarthestLayerAheadLeaves) {
  Policy policy({0, 0, 0, 1});
  policy.Insert({High(0, 0), High(1, 0), High(2, 0), High(3, 0)});
  EXPECT_EQ(policy.Order(Demand(High(2, 7)), 4), (std::vector{High(1, 0), High(0, 0), High(3, 0), High(2, 0)}));
}

// T = 4, w = (0.4, 0.2, 0, 0.4), layer 1 is computed. The expert of
//   layer 0: R 4, F 3: 0.4 + 0.15 + 0.1 = 0.65    layer 1: R 1, F 1: 0.1 + 0.05 + 0.4 = 0.55
//   layer 2: R 2, F 2: 0.2 + 0.1 + 0.3 = 0.6      layer 3: R 0, F 0: 0.2
TEST(HobbitPolicy, TermsAddUp) {
  Policy policy({0.4, 0.2, 0, 0.4});
  policy->OnSequenceStart(kUser);
  policy.Insert({High(0, 0), High(1, 0), High(2, 0), High(3, 0)});
  policy.Tokens(kUser, 1);
  policy.Use(High(1, 0));
  policy.Tokens(kUser, 1);
  for (int i = 0; i < 2; ++i) policy.Use(High(2, 0));
  policy.Tokens(kUser, 2);
  for (int i = 0; i < 3; ++i) policy.Use(High(0, 0));
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 4), (std::vector{High(3, 0), High(1, 0), High(2, 0), High(0, 0)}));
}

// T, F and H all count tokens: a prompt read in one step ranks experts as it does token by token.
TEST(HobbitPolicy, APromptsStepCountsItsTokens) {
  for (const HobbitWeights& weights : {HobbitWeights{0.2, 0.8, 0, 0}, HobbitWeights{0.2, 0, 0.8, 0}}) {
    Policy policy(weights);
    policy->OnSequenceStart(kUser);
    policy.Insert({High(1, 0), High(1, 1)});
    policy.Tokens(kUser, 64);
    policy->OnAccess(High(1, 0), {.sequence = kUser, .phase = Phase::kPrefill, .tokens = 60});
    policy->OnAccess(High(1, 1), {.sequence = kUser, .phase = Phase::kPrefill, .tokens = 4});
    policy.Tokens(kUser, 1);
    policy.Use(High(1, 1));
    // R/T 64/65 and 1, F/T and H/T 60/65 and 5/65.
    EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 1)});
  }
}

TEST(HobbitPolicy, RecordsBeginAndEndWithTheirSequence) {
  Policy policy({0, 1, 0, 0});
  policy.Insert({High(1, 0), High(1, 1)});
  policy->OnSequenceStart(kUser);
  policy.Tokens(kUser, 4);
  for (int i = 0; i < 3; ++i) policy.Use(High(1, 0));  // 3/4
  policy.Use(High(1, 1));                              // 1/4
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 1)});
  // Means over two sequences: (3/4 + 0) / 2 against (1/4 + 2/2) / 2.
  policy->OnSequenceStart(kOther);
  policy.Tokens(kOther, 2);
  for (int i = 0; i < 2; ++i) policy.Use(High(1, 1), kOther);
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 0)});
  policy->OnSequencePause(kOther);  // a conversation that is kept
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 1)});
  policy.Tokens(kOther, 1);  // goes on: (3/4 + 0) / 2 against (1/4 + 2/3) / 2
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 0)});
  policy->OnSequenceEnd(kOther);
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 1)});
  policy->OnSequenceEnd(kUser);
  policy->OnSequenceStart(kUser);  // anew: nothing is known, the one unused for longest leaves
  EXPECT_EQ(policy.Order(Demand(High(1, 7)), 1), std::vector{High(1, 0)});
  EXPECT_GT(policy->memory_bytes(), 0u);
}

// Capacity 400: high 356 bytes, low 44.
TEST(HobbitPolicy, EachPrecisionMakesRoomForItsOwnAtItsShare) {
  Policy policy({0, 0, 0, 1});
  policy->OnSequenceStart(kUser);
  for (int expert = 0; expert < 8; ++expert) policy.Insert({High(0, expert)});  // 320, and one more is 360
  for (int expert = 0; expert < 4; ++expert) policy.Insert({Low(3, expert)});   // 40
  EXPECT_EQ((*policy).Victim(Demand(High(1, 0)), kAnyKey), High(0, 0));
  EXPECT_EQ((*policy).Victim(Demand(Low(1, 0)), kAnyKey), Low(3, 0));
  // Low over its share: a high record that fits its own takes from there.
  for (int expert = 4; expert < 8; ++expert) policy.Insert({Low(3, expert)});
  policy->OnEvict(High(0, 5));
  EXPECT_EQ((*policy).Victim(Demand(High(1, 0)), kAnyKey), Low(3, 0));
  // Its own where the other has none that may leave.
  EXPECT_EQ((*policy).Victim(Demand(High(1, 0)), [](CachedKey key) { return key.precision == 0; }), High(0, 0));
}

TEST(HobbitPolicy, OnePrecisionIsOneCache) {
  const uint64_t record_bytes[] = {40};
  auto policy = MakePolicy("hobbit", {{kMoeLayers, 8, 2, 1, record_bytes, 80}}).value();
  policy->OnInsert(High(0, 0), 40);
  policy->OnInsert(High(1, 0), 40);
  EXPECT_EQ(policy->Victim(Demand(High(1, 1)), kAnyKey), High(0, 0));
}

}  // namespace hobbit_test
}  // namespace moed
