// How often a layer takes the cache's lock, which the threads that read need as well.
#include <deque>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace crossings_test {

constexpr uint64_t kOfALayer = 2;  // cache.h

// Looks at every expert before it leaves all as they are.
class CuriousMask final : public RouterMask {
 public:
  void Apply(LayerId layer, const TokenRouting&, const ResidencyView& residents, std::span<float> logits) override {
    for (size_t e = 0; e < logits.size(); ++e) residents_ += residents.Resident({layer, static_cast<int32_t>(e)}) ? 1 : 0;
  }

 private:
  int residents_ = 0;
};
class CuriousRule final : public FidelityRule {
 public:
  void Resolve(const LayerDemand& demand, std::span<Action>) override {
    for (const WantedExpert& wanted : demand.wanted) missing_ += demand.Missing(wanted) ? 1 : 0;
  }

 private:
  int missing_ = 0;
};
std::unique_ptr<ExpertPredictor> GuessesOfTheNextLayer() {
  std::map<LayerId, std::vector<Guess>> script;
  for (int32_t e = 0; e < kExperts; ++e) script[kFirst].push_back({{kSecond, e}, 0.9f});
  return std::make_unique<ScriptedPredictor>(std::move(script));
}

class Crossings : public testing::Test {
 protected:
  void Make(int records, RigParts parts = {}) { provider_ = MakeProvider(reads_, Records(records), std::move(parts)); }
  void WarmUp() {
    for (const LayerId layer : kLayers) RunLayer(*provider_, reads_, layer, {0, 1, 2, 3, 4, 5, 6, 7});
  }
  // Of what `does`, without those of the count.
  template <class Function>
  uint64_t Count(Function&& does) {
    const uint64_t before = provider_->Stats().lock_crossings;
    does();
    return provider_->Stats().lock_crossings - before - 1;
  }
  static std::vector<int32_t> FirstExperts(size_t count) {
    std::vector<int32_t> experts(count);
    std::iota(experts.begin(), experts.end(), 0);
    return experts;
  }

  ManualReadBackend reads_{8, StoreFile()};
  std::unique_ptr<CachingProvider> provider_;
};

TEST_F(Crossings, ALayerOfResidentsTakesTwoHoweverManyTheyAre) {
  Make(24);
  WarmUp();
  for (size_t count = 0; count <= kExperts; ++count) {
    EXPECT_EQ(Count([&] { EXPECT_EQ(RunLayer(*provider_, kSecond, FirstExperts(count)).experts.size(), count); }), kOfALayer);
  }
}

TEST_F(Crossings, AsManyWhereExpertsAreUsedTogether) {
  Make(24);
  WarmUp();
  Routing routing(kFirst, FirstExperts(kExperts));
  const auto use = [&] {
    std::vector<ReadyExpert> together;
    provider_->Begin(routing.Get());
    while (auto ready = provider_->NextReady()) together.push_back(*std::move(ready));
    EXPECT_FALSE(provider_->Next());
    EXPECT_EQ(together.size(), size_t{kExperts});
  };
  EXPECT_EQ(Count(use), kOfALayer);
}

TEST_F(Crossings, MasksRulesAndGuessesTakeNone) {
  RigParts parts;
  parts.mask = std::make_unique<CuriousMask>();
  parts.fidelity = std::make_unique<CuriousRule>();
  parts.predictor = GuessesOfTheNextLayer();
  Make(24, std::move(parts));
  WarmUp();
  const auto run = [&] {
    Routing routing(kFirst);
    for (int token = 0; token < 5; ++token) {
      TokenRouting masked{.sequence = kSession, .fidelity = Fidelity::Fast()};
      std::array<float, kExperts> logits{};
      provider_->MaskRouter(kFirst, {}, logits, masked);
      routing.Add(kSession, {token, 7}, Phase::kDecode, Fidelity::Fast());
    }
    EXPECT_EQ(RunLayer(*provider_, routing).experts.size(), 6u);
  };
  EXPECT_EQ(Count(run), kOfALayer);
}

// One more for the hand-out of all that has arrived, and one for each read's end.
TEST_F(Crossings, WhatHasArrivedIsHandedOutAtOnce) {
  for (size_t count = 1; count <= kExperts; ++count) {
    Make(24);
    EXPECT_EQ(Count([&] { RunLayer(*provider_, reads_, kFirst, FirstExperts(count)); }), kOfALayer + count + 1);
  }
}

// A handle whose pin nobody waits for is dropped without the lock, even where a guess found no room: not while it has none.
TEST_F(Crossings, AHandleTakesOneOnlyWhereItsPinIsAwaited) {
  Make(2);
  Routing routing(kFirst, {0, 1, 2});
  provider_->Begin(routing.Get());
  reads_.CompleteAll();
  std::deque<ReadyExpert> held;
  while (auto ready = provider_->NextReady()) held.push_back(*std::move(ready));
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(Count([&] { held.pop_front(); }), 1u);  // expert 2 takes its place
  EXPECT_EQ(reads_.pending().size(), 1u);
  EXPECT_EQ(Count([&] { held.pop_front(); }), 0u);
  Drain(*provider_, reads_);
}

}  // namespace crossings_test
}  // namespace moed
