#include "core/expert/learning/paths_option.h"
#include "tests/expert/policy_rig.h"

namespace moed {
namespace edgemoe_test {

const LayerId kMoeLayers[] = {LayerId(0), LayerId(2), LayerId(3)};  // S = 3; layer 1 is dense
const SequenceId kUser(1);

CachedKey Key(int layer, int expert, int precision = 0) { return {LayerId(layer), expert, static_cast<Precision>(precision)}; }
Incoming For(int current_layer) { return {Key(current_layer, 7), 1, LoadReason::kDemand, LayerId(current_layer)}; }

class Policy {
 public:
  explicit Policy(std::string_view name, const PartOptions& options = {}, int encoder_layers = 0) {
    PartContext context{{kMoeLayers, 8, 2, 2}};
    context.model.encoder_layers = encoder_layers;
    policy_ = MakePolicy(name, context, options).value();
  }
  void Insert(const CachedKey& key, int uses) {
    Use(key, uses);
    policy_->OnInsert(key, 1);
  }
  void Use(const CachedKey& key, int times) {
    for (int i = 0; i < times; ++i) policy_->OnAccess(key, {.sequence = kUser});
  }
  // Of a layer's first expert.
  float Popularity(int layer) const {
    float of_experts[8] = {};
    policy_->Popularity(LayerId(layer), of_experts);
    return of_experts[0];
  }
  // Who leaves first, second, ... while layer `current` is computed.
  std::vector<CachedKey> Order(int current, size_t count) {
    std::vector<CachedKey> order;
    while (order.size() < count) {
      const auto left = [&](CachedKey key) { return std::ranges::find(order, key) == order.end(); };
      const auto victim = policy_->Victim(For(current), left);
      if (!victim) break;
      order.push_back(*victim);
    }
    return order;
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
};

const CachedKey a = Key(0, 1), b = Key(2, 1), c = Key(3, 1);

// I = 1 (layer 2). Prose, (i - I) mod 3 with 0 -> 3: a 2, b 3, c 1. Printed, (3 - i + I) mod 3 with 0 -> 3: a 1, b 3, c 2.
TEST(EdgeMoePolicy, LowestUsesOverDistanceLeaves) {
  for (const auto& [name, expected] : {std::pair<const char*, std::vector<CachedKey>>{"edgemoe", {a, b, c}},
                                       std::pair<const char*, std::vector<CachedKey>>{"edgemoe-printed", {c, b, a}}}) {
    SCOPED_TRACE(name);
    Policy policy(name);
    policy.Insert(a, 4);  // 4 / 2 = 2, printed 4 / 1 = 4
    policy.Insert(b, 8);  // 8 / 3 = 2.7, either way
    policy.Insert(c, 5);  // 5 / 1 = 5, printed 5 / 2 = 2.5
    EXPECT_EQ(policy.Order(2, 9), expected);
  }
}

TEST(EdgeMoePolicy, TheOrderFollowsTheLayerThatIsComputed) {
  Policy policy("edgemoe");
  for (const CachedKey& key : {a, b, c}) policy.Insert(key, 6);
  EXPECT_EQ(policy.Order(0, 3), (std::vector{a, c, b}));  // distances 3, 1, 2
  EXPECT_EQ(policy.Order(2, 3), (std::vector{b, a, c}));  // 2, 3, 1
  EXPECT_EQ(policy.Order(3, 3), (std::vector{c, b, a}));  // 1, 2, 3
}

TEST(EdgeMoePolicy, EqualScoresTheFartherThenTheLongestUnused) {
  Policy policy("edgemoe");
  policy.Insert(b, 9);  // 9 / 3
  policy.Insert(c, 3);  // 3 / 1
  EXPECT_EQ(policy.Order(2, 1), std::vector{b});
  policy.Insert(Key(3, 2), 2);
  policy.Insert(Key(3, 3), 2);
  policy.Use(Key(3, 2), 1);
  policy.Use(Key(3, 3), 1);
  EXPECT_EQ(policy.Order(2, 4), (std::vector{b, c, Key(3, 2), Key(3, 3)}));
}

TEST(EdgeMoePolicy, UnusedLeaveFirstTheFartherBeforeTheNearer) {
  Policy policy("edgemoe");
  policy.Insert(a, 1);
  policy.Insert(Key(3, 4), 0);
  policy.Insert(Key(2, 4), 0);
  EXPECT_EQ(policy.Order(2, 3), (std::vector{Key(2, 4), Key(3, 4), a}));
}

// f is that of the profile (III-C2), so what was preloaded by it and never wanted yet does not leave first.
TEST(EdgeMoePolicy, UsesStartFromTheProfile) {
  auto paths = std::make_shared<ActivationPaths>(3, 8, 2, 1 << 16);
  for (int i = 0; i < 5; ++i) paths->Add(2, {{1}, {1}}, std::vector<int32_t>{4});
  paths->Add(0, {}, std::vector<int32_t>{1});
  PartOptions options;
  options.SetFile<ActivationPaths>(kPathsOption, paths);
  for (const std::string_view name : {"edgemoe", "edgemoe-printed"}) {
    Policy policy(name, options);
    policy.Insert(Key(3, 4), 0);
    policy.Insert(Key(0, 1), 1);
    policy.Insert(Key(0, 2), 0);
    // While layer 2 is computed: 5 uses by 1 or 2, 2 by 2 or 1, none.
    EXPECT_EQ(policy.Order(2, 3), (std::vector{Key(0, 2), Key(0, 1), Key(3, 4)})) << name;
  }
  options.SetFile<ActivationPaths>(kPathsOption, std::make_shared<ActivationPaths>(2, 8, 2, 1 << 16));
  EXPECT_FALSE(MakePolicy("edgemoe", {{kMoeLayers, 8, 2, 2}}, options).ok());
}

// "For the experts within the encoder, we set the frequency to 0"; S is "the size of MoE layers in this model's decoder".
TEST(EdgeMoePolicy, AnEncodersExpertsLeaveFirstAndDoNotLieBetweenItsDecodersLayers) {
  auto paths = std::make_shared<ActivationPaths>(3, 8, 2, 1 << 16);
  paths->Add(0, {}, std::vector<int32_t>{1});
  PartOptions options;
  options.SetFile<ActivationPaths>(kPathsOption, paths);
  Policy policy("edgemoe", options, /*encoder_layers=*/1);
  policy.Insert(a, 100);
  policy.Insert(b, 3);
  policy.Insert(c, 5);
  EXPECT_EQ(policy.Order(2, 3), (std::vector{a, b, c}));  // b 3 / 2, c 5 / 1
  EXPECT_EQ(policy.Order(3, 3), (std::vector{a, c, b}));  // c 5 / 2, b 3 / 1: of three layers 5 / 3 and 3 / 2
  policy.Use(c, 2);
  EXPECT_EQ(policy.Order(3, 3), (std::vector{a, b, c}));  // c 7 / 2; of three layers 7 / 3 and 3 / 2
  EXPECT_EQ(policy.Order(0, 3), (std::vector{a, b, c}));  // from the encoder on: b 3 / 1, c 7 / 2
}

TEST(EdgeMoePolicy, TheBufferBeginsWithTheEncodersExperts) {
  const Policy policy("edgemoe", {}, /*encoder_layers=*/1);
  EXPECT_GT(policy.Popularity(0), 0);
  EXPECT_EQ(policy.Popularity(2), 0);
}

TEST(EdgeMoePolicy, UsesAreTheExpertsAtAnyPrecisionAndOutliveTheStay) {
  Policy policy("edgemoe");
  policy.Insert(Key(0, 1, 1), 0);
  policy.Use(Key(0, 1, 0), 5);  // absent at this precision
  policy.Insert(Key(0, 2, 0), 4);
  EXPECT_EQ(policy.Order(2, 2), (std::vector{Key(0, 2), Key(0, 1, 1)}));
}

}  // namespace edgemoe_test
}  // namespace moed
