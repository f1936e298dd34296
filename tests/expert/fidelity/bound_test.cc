// What a token may lose, whatever rules and masks propose. Shares are worked out by hand: choices of .5 .25 .125 .125.
#include "core/expert/fidelity/bound.h"

#include <cmath>
#include <limits>

#include "tests/expert/demand_rig.h"

namespace moed {
namespace bound_test {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;

constexpr Action kLow{ActionKind::kUse, 1};
constexpr Action kSkipped{ActionKind::kSkip};

struct Held {
  std::vector<Action> actions;
  std::vector<float> lost;
};
Held Hold(DemandRig& rig, std::vector<Action> proposed) {
  const LayerDemand& demand = rig.Demand();
  Held held{std::move(proposed), std::vector<float>(demand.routing.tokens.size())};
  HoldBounds(demand, 2, held.actions, held.lost);
  return held;
}

TEST(HoldBounds, WhatFitsStays) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .125f}, {4, .125f}}, Fidelity::Bounded(.25f));
  const Held held = Hold(rig, {kExactly, kExactly, kLow, kSkipped});
  EXPECT_THAT(held.actions, ElementsAre(kExactly, kExactly, kLow, kSkipped));
  EXPECT_THAT(held.lost, ElementsAre(FloatEq(.25f)));
}

TEST(HoldBounds, TheHeaviestChoicesComeBackFirst) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .125f}, {4, .125f}}, Fidelity::Bounded(.2f));
  const Held held = Hold(rig, {kLow, kLow, kSkipped, kSkipped});  // 1 of it: .5 and .25 left, then .125
  EXPECT_THAT(held.actions, ElementsAre(kExactly, kExactly, kExactly, kSkipped));
  EXPECT_THAT(held.lost, ElementsAre(FloatEq(.125f)));
}

TEST(HoldBounds, SharesAreOfTheSumOfTheChoices) {
  DemandRig rig;  // a router that does not normalise: .4 .1 of all experts are .8 .2 of the choices
  rig.Add(kSession, {{1, .4f}, {2, .1f}}, Fidelity::Bounded(.15f));
  EXPECT_THAT(Hold(rig, {kExactly, kLow}).actions, Each(kExactly));
  DemandRig wider;
  wider.Add(kSession, {{1, .4f}, {2, .1f}}, Fidelity::Bounded(.25f));
  EXPECT_THAT(Hold(wider, {kExactly, kLow}).lost, ElementsAre(FloatEq(.2f)));
}

TEST(HoldBounds, TheStrictestTokenDecidesForAll) {
  DemandRig rig;
  rig.Add(kSession, {{1, .75f}, {2, .25f}}, Fidelity::Fast());
  rig.Add(SequenceId(2), {{2, .75f}, {3, .25f}}, Fidelity::Exact());
  const Held held = Hold(rig, {kLow, kSkipped, kSkipped});
  EXPECT_THAT(held.actions, ElementsAre(kLow, kExactly, kExactly));
  EXPECT_THAT(held.lost, ElementsAre(FloatEq(.75f), 0.0f));
}

TEST(HoldBounds, AnExactTokenKeepsEvenWhatWeighsNothing) {
  DemandRig rig;
  rig.Add(kSession, {{1, 1.0f}, {2, 0.0f}}, Fidelity::Exact());
  rig.Add(SequenceId(2), {{2, 1.0f}, {1, 0.0f}}, Fidelity::Fast());
  EXPECT_THAT(Hold(rig, {kLow, kSkipped}).actions, Each(kExactly));
}

TEST(HoldBounds, EverythingMayGoWhereEverythingMayBeLost) {
  for (const Fidelity fidelity : {Fidelity::Bounded(1), Fidelity::Fast()}) {
    DemandRig rig;
    rig.Add(kSession, {{1, .3f}, {2, .3f}, {3, .1f}, {4, .1f}}, fidelity);
    const Held held = Hold(rig, {kLow, kLow, kSkipped, kSkipped});
    EXPECT_THAT(held.actions, ElementsAre(kLow, kLow, kSkipped, kSkipped));
    EXPECT_THAT(held.lost, ElementsAre(1.0f));
  }
}

TEST(HoldBounds, WhatIsResidentCostsNothing) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .25f}}, Fidelity::Fast());
  rig.resident.insert({kDemandLayer, 1, 0});
  rig.resident.insert({kDemandLayer, 2, 1});
  const Held held = Hold(rig, {kLow, kSkipped, kSkipped});
  EXPECT_THAT(held.actions, ElementsAre(kExactly, kLow, kSkipped));
  EXPECT_THAT(held.lost, ElementsAre(FloatEq(.5f)));
  // For measuring what a rule loses, it is left aside.
  std::vector<Action> measured = {kLow, kSkipped, kSkipped};
  std::vector<float> lost(1);
  HoldBounds(rig.Demand(), 2, measured, lost, /*take_what_is_free=*/false);
  EXPECT_THAT(measured, ElementsAre(kLow, kSkipped, kSkipped));
  EXPECT_THAT(lost, ElementsAre(FloatEq(1)));
}

TEST(HoldBounds, WhatTheMaskTookIsNotLostTwice) {
  DemandRig rig;
  rig.Add(kSession, {{1, .75f}, {2, .25f}}, Fidelity::Bounded(.5f));
  rig.token(0).masked = 1;
  rig.token(0).masked_share = .375f;
  const Held held = Hold(rig, {kExactly, kLow});  // .375 + .25 would be too much
  EXPECT_THAT(held.actions, Each(kExactly));
  EXPECT_THAT(held.lost, ElementsAre(FloatEq(.375f)));
}

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Masks what is not resident and keeps what it saw.
class ResidentsOnly final : public RouterMask {
 public:
  explicit ResidentsOnly(std::vector<std::vector<float>>& seen) : seen_(seen) {}
  void Observe(LayerId, const TokenRouting&, std::span<const float>, std::span<const float> logits) override {
    seen_.emplace_back(logits.begin(), logits.end());
  }
  void Apply(LayerId layer, const TokenRouting&, const ResidencyView& residents, std::span<float> logits) override {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!residents.Resident({layer, static_cast<int32_t>(i)})) logits[i] = kMinusInfinity;
    }
  }

 private:
  std::vector<std::vector<float>>& seen_;
};

// Of the experts 0 to 3 with probabilities .5 .25 .125 .125, of which two are chosen: shares 2/3 and 1/3.
constexpr ExpertChoice kUnmasked[] = {{0, .5f}, {1, .25f}};
struct Masked {
  TokenRouting token;
  std::vector<float> logits = {std::log(.5f), std::log(.25f), std::log(.125f), std::log(.125f)};
};
Masked Mask(Fidelity fidelity, std::set<CachedKey> residents) {
  std::vector<std::vector<float>> seen;
  BoundedMask mask(std::make_unique<ResidentsOnly>(seen));
  Masked masked{{.sequence = kSession, .choices = kUnmasked, .fidelity = fidelity}};
  mask.Apply(kDemandLayer, SetOfResidents(residents), masked.logits, masked.token);
  return masked;
}

TEST(BoundedMask, MasksWhatTheTokenMayLose) {
  const Masked masked = Mask(Fidelity::Bounded(.4f), {{kDemandLayer, 0}, {kDemandLayer, 3}});
  EXPECT_THAT(masked.logits, ElementsAre(std::log(.5f), kMinusInfinity, kMinusInfinity, std::log(.125f)));
  EXPECT_EQ(masked.token.masked, 1);
  EXPECT_FLOAT_EQ(masked.token.masked_share, 1 / 3.f);
}

TEST(BoundedMask, TheHeaviestComesBackWhereItIsTooMuch) {
  const Masked masked = Mask(Fidelity::Bounded(.4f), {{kDemandLayer, 2}, {kDemandLayer, 3}});  // 1 would be gone; 2/3 come back
  EXPECT_THAT(masked.logits, ElementsAre(std::log(.5f), kMinusInfinity, std::log(.125f), std::log(.125f)));
  EXPECT_EQ(masked.token.masked, 1);
  EXPECT_FLOAT_EQ(masked.token.masked_share, 1 / 3.f);
  const Masked stricter = Mask(Fidelity::Bounded(.3f), {{kDemandLayer, 2}});
  EXPECT_EQ(stricter.token.masked, 0);
  EXPECT_EQ(stricter.token.masked_share, 0);
}

TEST(BoundedMask, AnExactTokenIsNeverMasked) {
  const Masked masked = Mask(Fidelity::Exact(), {});
  EXPECT_THAT(masked.logits, Each(testing::Gt(kMinusInfinity)));
  EXPECT_EQ(masked.token.masked, 0);
}

TEST(BoundedMask, SomethingIsAlwaysLeftToChoose) {
  const Masked masked = Mask(Fidelity::Fast(), {});
  EXPECT_THAT(masked.logits, ElementsAre(std::log(.5f), kMinusInfinity, kMinusInfinity, kMinusInfinity));
  EXPECT_EQ(masked.token.masked, 1);
}

// A router that is no softmax: what a choice weighs is not what its logit says.
TEST(BoundedMask, SharesAreThoseOfTheChoices) {
  std::vector<std::vector<float>> seen;
  BoundedMask mask(std::make_unique<ResidentsOnly>(seen));
  const ExpertChoice choices[] = {{3, .3f}, {0, .1f}};
  TokenRouting token{.sequence = kSession, .choices = choices, .fidelity = Fidelity::Bounded(.25f)};
  std::vector<float> logits = {9, 8, 7, -1};
  mask.Apply(kDemandLayer, SetOfResidents({{kDemandLayer, 1}}), logits, token);
  EXPECT_THAT(logits, ElementsAre(kMinusInfinity, 8, kMinusInfinity, -1));
  EXPECT_EQ(token.masked, 1);
  EXPECT_FLOAT_EQ(token.masked_share, .25f);
}

TEST(RouterMasks, NoneLeavesTheLogitsAlone) { EXPECT_EQ(MakeRouterMask("none", {StoreContext()}).value(), nullptr); }

TEST(RouterMasks, SeeEveryTokenAndMaskBeforeTheChoice) {
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 2);
  std::vector<std::vector<float>> seen;
  RigParts parts;
  parts.mask = std::make_unique<ResidentsOnly>(seen);
  auto provider = MakeProvider(*reads, Records(8), std::move(parts));
  RunLayer(*provider, kLayers[0], {4, 5});
  const std::vector<float> hidden(16);
  const std::vector<float> given = {1, 2, 3, 4, 5, 6, 7, 8};
  const ExpertChoice unmasked[] = {{7, .5f}, {6, .25f}, {5, .125f}, {4, .125f}};
  for (const Fidelity fidelity : {Fidelity::Exact(), Fidelity::Fast()}) {
    std::vector<float> logits = given;
    TokenRouting token{.sequence = kSession, .choices = unmasked, .fidelity = fidelity};
    provider->MaskRouter(kLayers[0], hidden, logits, token);
    EXPECT_EQ(token.masked, fidelity.exact() ? 0 : 2) << "of 4 7 6 5, two are resident";
    EXPECT_EQ(logits[7], fidelity.exact() ? 8 : kMinusInfinity);
    EXPECT_EQ(logits[4], 5);
  }
  EXPECT_THAT(seen, Each(given));
}

TEST(RouterMasks, AChoiceOfProbabilityZeroIsNotRead) {
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 2);
  auto provider = MakeProvider(*reads, Records(8));
  const ExpertChoice choices[] = {{4, .75f}, {5, .25f}, {6, 0}, {7, 0}};
  const TokenRouting token{
      .sequence = kSession, .choices = choices, .fidelity = Fidelity::Fast(), .masked = 2, .masked_share = .5f};
  provider->Begin({kLayers[0], {&token, 1}});
  std::set<int32_t> experts;
  while (auto ready = provider->Next()) experts.insert(ready->expert);
  EXPECT_THAT(experts, ElementsAre(4, 5));
  const SequenceCounters counters = provider->sequence_counters(kSession);
  EXPECT_EQ(counters.masked, 2u);
  EXPECT_FLOAT_EQ(static_cast<float>(counters.gate_mass_lost), .5f);
  EXPECT_EQ(counters.routed_tokens, 1u);
}

}  // namespace bound_test
}  // namespace moed
