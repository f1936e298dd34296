// The parts of SwapMoE around the production cache: what is read, what is used, and that an answer waits for nothing.
#include <cmath>
#include <random>

#include "core/expert/fidelity/swapmoe.h"
#include "core/expert/policies/swapmoe.h"
#include "core/expert/predictors/swapmoe.h"
#include "tests/expert/provider_rig.h"
#include "tests/expert/swapmoe/in_set.h"

namespace moed {
namespace serving_test {

constexpr float kMasked = -INFINITY;
constexpr int kSlots = 2;  // a layer
constexpr int kRecords = 3 * kSlots + 1;
constexpr int kMostSteps = 1'000'000;  // for reads to end on threads that hardly get the processor

// Steps as the model runs them, with a router that the test steers.
class SwapMoeServingTest : public testing::Test {
 protected:
  void Start(std::vector<int> slots = {kSlots, kSlots, kSlots}, int window = 6) {
    SwapMoeOptions options{.clock = &Clock::Real()};
    options.slots = std::move(slots);
    options.norms.assign(24, 1);
    options.frequency = {.window = window, .growth = 1};
    const ExpertModelShape model = StoreContext(kRecords);
    experts_ = std::make_shared<SwapMoeExperts>(model, options);
    RigParts parts;
    parts.policy = MakeSwapMoePolicy(experts_);
    parts.predictor = MakeSwapMoePredictor(experts_);
    parts.mask = MakeSwapMoeMask(experts_, kExperts);
    provider_ = MakeProvider(*reads_, Records(kRecords), std::move(parts));
  }

  // One token through all layers; its router favours `favourite` and its neighbours. False when an expert had to be waited for.
  bool Step(Phase phase, int favourite, Fidelity fidelity = Fidelity::Fast()) {
    bool at_once = true;
    for (const LayerId layer : kLayers) {
      std::vector<float> logits(kExperts);
      for (int e = 0; e < kExperts; ++e) logits[e] = -std::fabs(static_cast<float>(e - favourite)) + noise_(random_);
      const std::vector<ExpertChoice> unmasked = TopK(logits);
      TokenRouting token{.sequence = kSession, .phase = phase, .choices = unmasked, .fidelity = fidelity};
      provider_->MaskRouter(layer, hidden_, logits, token);
      const std::vector<ExpertChoice> choices = TopK(logits);
      token.choices = choices;
      provider_->Begin({layer, {&token, 1}});
      size_t delivered = 0;
      while (auto ready = provider_->NextReady()) Use(*ready, delivered);
      const size_t ready_at_once = delivered;
      while (auto ready = provider_->Next()) Use(*ready, delivered);
      at_once = at_once && ready_at_once == delivered;
      EXPECT_GT(delivered, 0u);
    }
    return at_once;
  }
  static void Use(const ReadyExpert& ready, size_t& delivered) {
    ASSERT_TRUE(ready.status.ok()) << ready.status;
    ++delivered;
  }
  static std::vector<ExpertChoice> TopK(const std::vector<float>& logits) {
    std::vector<ExpertChoice> all;
    for (int e = 0; e < kExperts; ++e) all.push_back({e, logits[e] == kMasked ? 0 : std::exp(logits[e])});
    std::ranges::stable_sort(all, [](const ExpertChoice& a, const ExpertChoice& b) { return a.probability > b.probability; });
    all.resize(kTopK);
    return all;
  }
  uint64_t DecodeLookups(LookupResult result) const {
    uint64_t sum = 0;
    for (const LayerStats& layer : provider_->Stats().layers) {
      sum += layer.lookups[static_cast<size_t>(Phase::kDecode)][static_cast<size_t>(result)];
    }
    return sum;
  }
  std::vector<uint32_t> Held() const {
    std::vector<uint32_t> held;
    for (const LayerStats& layer : provider_->Stats().layers) held.push_back(layer.resident[kReferencePrecision]);
    return held;
  }

  std::shared_ptr<LyingFile> file_ = StoreFile();
  std::unique_ptr<ReadBackend> reads_ = MakeThreadedReadBackend("memory", file_, 2);
  std::shared_ptr<SwapMoeExperts> experts_;
  std::unique_ptr<CachingProvider> provider_;
  const std::vector<float> hidden_ = std::vector<float>(96, .5f);
  std::mt19937 random_{7};
  std::uniform_real_distribution<float> noise_{0, .5f};
};

TEST_F(SwapMoeServingTest, AnswersGoOnWhileNoReadEverEnds) {
  Start();
  for (int i = 0; i < 4; ++i) Step(Phase::kPrefill, 0);
  file_->Hold({});
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Step(Phase::kDecode, 5)) << "step " << i;
  EXPECT_EQ(DecodeLookups(LookupResult::kMiss) + DecodeLookups(LookupResult::kInflight), 0u);
  EXPECT_EQ(provider_->Stats().stall_seconds[static_cast<size_t>(Phase::kDecode)], 0);
  EXPECT_GT(provider_->sequence_counters(kSession).masked, 0u);
  file_->Release();
}

// Looks at what is resident whenever it hears that an expert has left.
class LookingPolicy final : public EvictionPolicy {
 public:
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey key, uint64_t) override { inserted_.push_back(key); }
  void OnEvict(CachedKey key) override {
    std::erase(inserted_, key);
    const std::vector<ExpertKey> residents = ResidentExperts(*provider);
    EXPECT_EQ(std::ranges::count(residents, key.expert_key()), 0);
    ++looked;
  }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    const auto first = std::ranges::find_if(inserted_, evictable);
    return first == inserted_.end() ? std::nullopt : std::optional(*first);
  }

  const CachingProvider* provider = nullptr;
  int looked = 0;

 private:
  std::vector<CachedKey> inserted_;
};

// Otherwise the mask, which asks without the cache's lock, would allow what is gone when the layer begins.
TEST(SwapMoeEviction, WhatLeavesIsAbsentBeforeThePolicyHearsOfIt) {
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto looking = std::make_unique<LookingPolicy>();
  LookingPolicy& policy = *looking;
  RigParts parts;
  parts.policy = std::move(looking);
  const auto provider = MakeProvider(*reads, Records(2), std::move(parts));
  policy.provider = provider.get();
  for (const int32_t expert : {0, 1, 2, 3}) RunLayer(*provider, kFirst, {expert});
  EXPECT_EQ(policy.looked, 2);
}

// Reads end at any moment on their own threads; whatever the mask allowed is still there when the layer begins.
TEST_F(SwapMoeServingTest, NoAnswerWaitsWhileExpertsAreSwapped) {
  Start({3, 2, 1}, 3);
  for (int i = 0; i < 4; ++i) Step(Phase::kPrefill, 0);
  const auto swaps = [this] { return provider_->Stats().loads[static_cast<size_t>(LoadReason::kPrefetch)].count; };
  for (int i = 0; i < kMostSteps && (i < 3000 || swaps() <= 50); ++i) {
    ASSERT_TRUE(Step(Phase::kDecode, i / 20 % kExperts)) << "step " << i;
  }
  EXPECT_EQ(DecodeLookups(LookupResult::kMiss) + DecodeLookups(LookupResult::kInflight), 0u);
  const ExpertStats stats = provider_->Stats();
  EXPECT_GT(swaps(), 50u) << "nothing was swapped";
  EXPECT_EQ(stats.bypass_loads, 0u);
  EXPECT_LE(stats.cache_bytes, stats.cache_capacity_bytes);
}

TEST_F(SwapMoeServingTest, TheSetFollowsTheUnmaskedRouter) {
  Start();
  for (int i = 0; i < 4; ++i) Step(Phase::kPrefill, 0);
  const auto there = [this](int expert) {
    const std::vector<ExpertKey> residents = ResidentExperts(*provider_);
    return std::ranges::count(residents, expert, &ExpertKey::expert) == 3;
  };
  for (int i = 0; i < kMostSteps && !there(6); ++i) Step(Phase::kDecode, 6);
  EXPECT_TRUE(there(6)) << "an expert outside the set never came in";
  for (const LayerId layer : kLayers) EXPECT_TRUE(InSet(*experts_, {layer, 6}));
}

TEST_F(SwapMoeServingTest, ALayerHoldsItsSlotsAndTheSpareOneAtMost) {
  Start({1, 2, 3}, 3);
  for (int i = 0; i < 4; ++i) Step(Phase::kPrefill, 0);
  for (int i = 0; i < 600; ++i) {
    Step(Phase::kDecode, i / 10 % kExperts);
    const std::vector<uint32_t> held = Held();
    for (uint32_t layer = 0; layer < 3; ++layer) EXPECT_LE(held[layer], layer + 1 + 1) << "layer " << layer;
  }
}

TEST_F(SwapMoeServingTest, ExactTokensAreNotMaskedAndTheSetComesBack) {
  Start();
  for (int i = 0; i < 4; ++i) Step(Phase::kPrefill, 0);
  const SequenceCounters before = provider_->sequence_counters(kSession);
  for (int i = 0; i < 20; ++i) Step(Phase::kDecode, 5, Fidelity::Exact());
  EXPECT_EQ(provider_->sequence_counters(kSession).gate_mass_lost, before.gate_mass_lost);
  EXPECT_EQ(provider_->sequence_counters(kSession).masked, before.masked);
  const auto filled = [this] { return std::ranges::all_of(Held(), [](uint32_t held) { return held >= kSlots; }); };
  for (int i = 0; i < kMostSteps && !filled(); ++i) ASSERT_TRUE(Step(Phase::kDecode, 5));
  EXPECT_TRUE(filled());
}

TEST_F(SwapMoeServingTest, ABoundIsKeptByWaiting) {
  Start();
  for (int i = 0; i < 4; ++i) Step(Phase::kPrefill, 0);
  const double before = provider_->sequence_counters(kSession).gate_mass_lost;
  for (int i = 0; i < 50; ++i) Step(Phase::kDecode, 5, Fidelity::Bounded(.25f));
  const double lost = provider_->sequence_counters(kSession).gate_mass_lost - before;
  EXPECT_GT(lost, 0);
  EXPECT_LE(lost, .25 * 50 * 3);
}

}  // namespace serving_test
}  // namespace moed
