// The shared state of SwapMoE's parts, without a cache: who is due when, who leaves, who may be used.
#include "core/expert/swapmoe/experts.h"

#include <set>

#include "tests/expert/policy_rig.h"
#include "tests/expert/provider_rig.h"
#include "tests/expert/swapmoe/in_set.h"

namespace moed {
namespace experts_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kMany = 100;

// Three layers of eight experts, one chosen by each token, two slots a layer, windows of six tokens.
class SwapMoeExpertsTest : public testing::Test {
 protected:
  static SwapMoeOptions Options() {
    SwapMoeOptions options{.clock = &Clock::Real()};
    options.slots = {2, 2, 2};
    options.norms.assign(24, 1);
    options.fade = 0;
    options.frequency = {.window = 6, .growth = 1};
    return options;
  }
  // Every layer's router favours `expert` for one token.
  void Token(int expert, Phase phase = Phase::kDecode) {
    for (const LayerId layer : kLayers) {
      Look(layer, expert, phase);
      experts_.OnRouted(layer);
    }
  }
  void Look(LayerId layer, int expert, Phase phase = Phase::kDecode) {
    std::vector<float> logits(kExperts);
    logits[static_cast<size_t>(expert)] = 5;
    experts_.OnToken(layer, phase, hidden_, logits);
  }
  std::vector<ExpertKey> Due(LayerId from = kLayers[2]) {
    std::vector<Guess> guesses;
    experts_.Due(from, kMany, guesses);
    std::vector<ExpertKey> keys;
    for (const Guess& guess : guesses) keys.push_back(guess.key);
    return keys;
  }
  void Insert(LayerId layer, int expert) {
    experts_.OnInsert({layer, expert});
    here_.insert({layer, expert});
  }
  void Evict(const CachedKey& key) {
    experts_.OnEvict(key);
    here_.erase(key.expert_key());
  }
  std::vector<uint8_t> Usable(LayerId layer, Phase phase) {
    std::vector<uint8_t> usable(kExperts, 9);
    experts_.Usable(
        layer, phase,
        [&](int32_t e) {
          return here_.contains({layer, e});
        },
        usable);
    return usable;
  }
  // The mask has looked again then.
  bool InSet(const ExpertKey& key) {
    const bool in_set = moed::InSet(experts_, key);
    Usable(key.layer, Phase::kDecode);
    return in_set;
  }
  // Norms are equal: the first set is 0 and 1 in every layer.
  void Fill() {
    for (const LayerId layer : kLayers) {
      Insert(layer, 0);
      Insert(layer, 1);
      Usable(layer, Phase::kPrefill);
    }
  }
  std::optional<CachedKey> Victim(const CachedKey& incoming, LoadReason reason = LoadReason::kPrefetch) {
    return experts_.Victim({incoming, 1, reason, incoming.layer}, kAnyKey);
  }

  const std::vector<float> hidden_ = {1, 2};
  SwapMoeExperts experts_{ExpertModelShape{kLayers, kExperts, 1, 2}, Options()};
  std::set<ExpertKey> here_;
};

TEST_F(SwapMoeExpertsTest, TheFirstSetIsReadWithoutWaitingForTurns) {
  EXPECT_THAT(Due(kLayers[0]), ElementsAre(ExpertKey{kLayers[1], 0}, ExpertKey{kLayers[1], 1}, ExpertKey{kLayers[2], 0},
                                           ExpertKey{kLayers[2], 1}, ExpertKey{kLayers[0], 0}, ExpertKey{kLayers[0], 1}));
  std::vector<Guess> some;
  experts_.Due(kLayers[0], 2, some);
  EXPECT_EQ(some.size(), 2u);
  Fill();
  EXPECT_THAT(Due(), IsEmpty());
}

TEST_F(SwapMoeExpertsTest, LoadsAreSpreadOverTheWindowOneLayerAtATime) {
  Fill();
  for (int i = 0; i < 6; ++i) Token(i % 2 == 0 ? 5 : 6);
  EXPECT_THAT(Due(), IsEmpty());  // the window has not ended
  // Six tokens for three layers: a layer's turn comes with every second one.
  const std::vector<size_t> due = {2, 2, 4, 4, 6, 6};
  for (size_t token = 0; token < due.size(); ++token) {
    Token(5);
    const std::vector<ExpertKey> keys = Due();
    EXPECT_EQ(keys.size(), due[token]) << token;
    EXPECT_EQ(keys.front(), (ExpertKey{kLayers[0], 5}));
    for (const ExpertKey& key : keys) EXPECT_TRUE(key.expert == 5 || key.expert == 6);
  }
}

TEST_F(SwapMoeExpertsTest, WhatIsReplacedLeavesOnlyForASlotThatIsNeeded) {
  Fill();
  for (int i = 0; i < 7; ++i) Token(i % 2 == 0 ? 5 : 6);
  EXPECT_FALSE(InSet({kLayers[0], 0}));
  Insert(kLayers[0], 5);  // the spare slot: layer 0 holds three now
  const auto for_the_next = Victim({kLayers[1], 5});
  ASSERT_TRUE(for_the_next.has_value());
  EXPECT_EQ(for_the_next->layer, kLayers[0]);  // not 0 or 1 of the layer whose replacement is still to come
  EXPECT_FALSE(InSet(for_the_next->expert_key()));
  Evict(*for_the_next);
  Insert(kLayers[1], 5);
  EXPECT_EQ(Victim({kLayers[0], 6})->layer, kLayers[1]);
}

TEST_F(SwapMoeExpertsTest, APlannedLoadNeverEvictsTheSetNorTheLayerThatIsBeingRouted) {
  Fill();
  EXPECT_EQ(Victim({kLayers[0], 5}), std::nullopt);
  for (int i = 0; i < 7; ++i) Token(i % 2 == 0 ? 5 : 6);
  Insert(kLayers[0], 5);
  EXPECT_TRUE(Victim({kLayers[0], 6}).has_value());
  Look(kLayers[0], 5);  // its mask looks at the residents now
  EXPECT_EQ(Victim({kLayers[0], 6}), std::nullopt);
  EXPECT_EQ(Victim({kLayers[1], 5}), std::nullopt);
  EXPECT_TRUE(Victim({kLayers[0], 6}, LoadReason::kDemand).has_value());
  experts_.OnRouted(kLayers[0]);
  EXPECT_EQ(Victim({kLayers[0], 6})->layer, kLayers[0]);
}

// Between the choice of who leaves and its end another thread's mask may look: the cache still says that it is resident.
TEST_F(SwapMoeExpertsTest, WhoIsLeavingIsNotUsable) {
  Fill();
  for (int i = 0; i < 7; ++i) Token(i % 2 == 0 ? 5 : 6);
  Insert(kLayers[0], 5);
  const CachedKey leaving = Victim({kLayers[0], 6}).value();
  const CachedKey beside{kLayers[0], 1 - leaving.expert};
  EXPECT_EQ(Usable(kLayers[0], Phase::kDecode)[static_cast<size_t>(leaving.expert)], 0);
  EXPECT_EQ(Usable(kLayers[0], Phase::kDecode)[static_cast<size_t>(beside.expert)], 1);
  Evict(leaving);
  Insert(leaving.layer, leaving.expert);
  EXPECT_EQ(Usable(kLayers[0], Phase::kDecode)[static_cast<size_t>(leaving.expert)], 1) << "it is back";
}

// What a planned load of the same layer brings is on its way until the mask has seen it.
TEST_F(SwapMoeExpertsTest, TheLastOneThatIsThereLeavesForNoPlannedLoad) {
  Fill();
  for (int i = 0; i < 7; ++i) Token(i % 2 == 0 ? 5 : 6);
  Insert(kLayers[0], 5);
  Evict(*Victim({kLayers[0], 6}));
  Insert(kLayers[0], 6);
  EXPECT_EQ(Victim({kLayers[1], 5}), std::nullopt);  // it would be 0 or 1 of layer 0
  Usable(kLayers[0], Phase::kDecode);
  EXPECT_EQ(Victim({kLayers[1], 5})->layer, kLayers[0]);
}

TEST_F(SwapMoeExpertsTest, ADemandTakesWhatNoSetKeepsThenItsOwnLayersLeastImportant) {
  Fill();
  for (int i = 0; i < 5; ++i) Token(i == 0 ? 1 : 0);
  Insert(kLayers[2], 7);
  EXPECT_EQ(Victim({kLayers[1], 7}, LoadReason::kDemand), (CachedKey{kLayers[2], 7}));
  Evict({kLayers[2], 7});
  EXPECT_EQ(Victim({kLayers[1], 7}, LoadReason::kDemand), (CachedKey{kLayers[1], 1}));
  const auto only_zero = [](CachedKey key) { return key.layer == kLayers[2] && key.expert == 0; };
  EXPECT_EQ(experts_.Victim({{kLayers[1], 7}, 1, LoadReason::kDemand, kLayers[1]}, only_zero), (CachedKey{kLayers[2], 0}));
}

TEST_F(SwapMoeExpertsTest, APromptWaitsForTheSetUntilItIsFilledAnAnswerNever) {
  EXPECT_THAT(Usable(kLayers[0], Phase::kDecode), ElementsAre(1, 1, 0, 0, 0, 0, 0, 0));  // nothing is there at all
  Insert(kLayers[0], 1);
  EXPECT_THAT(Usable(kLayers[0], Phase::kDecode), ElementsAre(0, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Usable(kLayers[0], Phase::kPrefill), ElementsAre(1, 1, 0, 0, 0, 0, 0, 0));
  Insert(kLayers[0], 0);
  Insert(kLayers[0], 6);
  EXPECT_THAT(Usable(kLayers[0], Phase::kPrefill), ElementsAre(1, 1, 0, 0, 0, 0, 1, 0));
  Evict({kLayers[0], 0});
  EXPECT_THAT(Usable(kLayers[0], Phase::kPrefill), ElementsAre(0, 1, 0, 0, 0, 0, 1, 0)) << "once filled, prompts wait no more";
}

TEST_F(SwapMoeExpertsTest, AStaticSetStays) {
  SwapMoeOptions options = Options();
  options.updates = false;
  for (size_t layer = 0; layer < 3; ++layer) options.norms[layer * kExperts + 4 + layer] = 2;
  SwapMoeExperts pruned(ExpertModelShape{kLayers, kExperts, 1, 2}, options);
  const std::vector<float> logits = {0, 0, 9, 0, 0, 0, 0, 0};
  for (int token = 0; token < 20; ++token) {
    for (const LayerId layer : kLayers) {
      pruned.OnToken(layer, Phase::kDecode, hidden_, logits);
      pruned.OnRouted(layer);
    }
  }
  for (int layer = 0; layer < 3; ++layer) {
    for (int expert = 0; expert < kExperts; ++expert) {
      EXPECT_EQ(moed::InSet(pruned, {kLayers[layer], expert}), expert == 4 + layer || expert == 0) << layer << " " << expert;
    }
  }
}

// Steps of answers begin with the decoder, here the last two layers.
TEST_F(SwapMoeExpertsTest, AnEncoderDecodersAnswersChangeItsSets) {
  ExpertModelShape model{kLayers, kExperts, 1, 2};
  model.encoder_layers = 1;
  SwapMoeExperts experts(model, Options());
  std::vector<float> logits(kExperts);
  logits[5] = 5;
  for (int token = 0; token < 7; ++token) {
    for (const LayerId layer : {kLayers[1], kLayers[2]}) {
      experts.OnToken(layer, Phase::kDecode, hidden_, logits);
      experts.OnRouted(layer);
      EXPECT_EQ(moed::InSet(experts, {kLayers[1], 5}), token == 6) << token;
    }
  }
}

TEST_F(SwapMoeExpertsTest, AWindowEndsBetweenStepsOnly) {
  Fill();
  for (const LayerId layer : kLayers) {
    for (int token = 0; token < 20; ++token) Look(layer, 5, Phase::kPrefill);
    experts_.OnRouted(layer);
  }
  EXPECT_FALSE(InSet({kLayers[0], 5}));
  Look(kLayers[0], 5);
  EXPECT_TRUE(InSet({kLayers[0], 5}));
}

}  // namespace experts_test
}  // namespace moed
