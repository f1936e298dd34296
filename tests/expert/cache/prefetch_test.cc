// Guesses: when they are read, what they may evict, what becomes of them.
#include <random>
#include <utility>

#include "tests/expert/cache/prefetch_rig.h"

namespace moed {
namespace prefetch_test {

using testing::ElementsAre;

TEST_F(Prefetch, AGuessIsReadAloneAfterTheDemands) {
  auto provider = Make(8, {{kFirst, {Likely(kSecond, 4), Likely(kSecond, 5)}}}, reads_);
  Routing routing(kFirst, {1, 2});
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 1), At(kFirst, 2)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 2)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 4)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 5)));
  Drain(*provider, reads_);
}

// HOBBIT, 3.3: "we must wait for the loading of the incorrect expert to finish". Whoever guesses, and however much the device
// would take at once.
TEST_F(Prefetch, ADemandWaitsBehindOneGuessAtMost) {
  for (const PredictorRow& row : Predictors()) {
    if (row.name == "swapmoe") continue;  // with its mask alone
    FakeClock clock;
    RigParts parts;
    parts.predictor = MakePredictor(row.name, StoreParts()).value();
    parts.clock = &clock;
    auto provider = MakeProvider(reads_, Records(8), std::move(parts));
    const std::vector<float> hidden(96, 1.f);
    size_t most = 0;
    std::mt19937 random(7);
    for (int i = 0; i < 600; ++i) {
      const LayerId layer = kLayers[i % 3];
      if (i % 3 == 0) provider->OnToken(kSession, TokenId(i / 3 % 2));
      provider->OnGateInput(kSession, layer, hidden);
      provider->OnTokenGateInput(kSession, layer, hidden);
      // Mostly by the token, so that whoever learns has something to guess, with more misses than the cache has room for.
      const int32_t expert = random() % 8 == 0 ? static_cast<int32_t>(random() % kExperts) : i / 3 % 2 * 4 + i % 3;
      Routing routing(layer, {expert, (expert + 3) % kExperts, (expert + 5) % kExperts});
      const size_t ahead = reads_.pending().size();
      most = std::max(most, ahead);
      EXPECT_LE(ahead, 1u) << row.name << " at " << i;
      provider->Begin(routing.Get());
      while (!reads_.pending().empty() && std::ranges::any_of(reads_.pending(), [&](uint64_t offset) {
        return std::ranges::any_of(routing.Get().tokens[0].choices,
                                   [&](const ExpertChoice& choice) { return At(layer, choice.expert) == offset; });
      })) {
        clock.AdvanceNanos(10);
        ASSERT_TRUE(reads_.CompleteNext());
      }
      while (auto ready = provider->Next()) {
      }
      clock.AdvanceNanos(50);
    }
    EXPECT_EQ(most, row.name == "none" ? 0u : 1u) << row.name;
    Drain(*provider, reads_);
  }
}

TEST_F(Prefetch, AGuessInTimeIsAHit) {
  auto provider = Make(8, {{kFirst, {Likely(kSecond, 4)}}}, reads_);
  RunLayer(*provider, reads_, kFirst, {1});
  RunLayer(*provider, reads_, kSecond, {4});
  EXPECT_THAT(Lookups(*provider), ElementsAre(1, 1, 0));
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 1u);
  EXPECT_EQ(reads_.submitted().size(), 2u);
  const ExpertStats stats = provider->Stats();
  const uint64_t record = ExpertStore::Get().record_bytes();
  EXPECT_THAT(stats.load_bytes[0], ElementsAre(record, record, 0));
  EXPECT_EQ(stats.loads[0].count, 1u);
  EXPECT_EQ(stats.loads[1].count, 1u);
  EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, record);
  RunLayer(*provider, reads_, kSecond, {4});
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 1u);  // once
}

TEST_F(Prefetch, SavesAtMostARead) {
  FakeClock clock;
  RigParts parts;
  parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, {Likely(kSecond, 4)}}});
  parts.clock = &clock;
  auto provider = MakeProvider(single_, Records(8), std::move(parts));
  Routing first(kFirst, {1});
  provider->Begin(first.Get());
  clock.AdvanceNanos(1000);
  ASSERT_TRUE(single_.CompleteNext());
  clock.AdvanceNanos(1000);
  ASSERT_TRUE(single_.CompleteNext());  // the guess: as long
  EXPECT_EQ(provider->Next()->expert, 1);
  EXPECT_FALSE(provider->Next().has_value());
  clock.AdvanceNanos(5000);
  RunLayer(*provider, single_, kSecond, {4});
  EXPECT_NEAR(provider->Stats().prefetch_saved_seconds, 1e-6, 1e-9);
}

TEST_F(Prefetch, AGuessInFlightIsJoined) {
  auto provider = Make(8, {{kFirst, {Likely(kSecond, 4)}}}, reads_);
  Routing first(kFirst, {1});
  provider->Begin(first.Get());
  ASSERT_TRUE(reads_.Complete(At(kFirst, 1)));
  EXPECT_EQ(provider->Next()->expert, 1);
  Routing second(kSecond, {4});
  provider->Begin(second.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 4)));
  EXPECT_THAT(Lookups(*provider), ElementsAre(1 - 1, 1, 1));
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kLate), 1u);
  EXPECT_THAT(Drain(*provider, reads_), ElementsAre(4));
  EXPECT_EQ(reads_.submitted().size(), 2u);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 0u);
}

TEST_F(Prefetch, PlannedGuessesOfAPassedLayerAreDropped) {
  auto provider = Make(8, {{kFirst, {Likely(kSecond, 4), Likely(kSecond, 5), Likely(kThird, 6)}}}, reads_);
  Routing first(kFirst, {1});
  provider->Begin(first.Get());
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_EQ(provider->Next()->expert, 1);
  Routing second(kSecond, {2});
  provider->Begin(second.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 4), At(kSecond, 2)));  // 4 is in flight and goes on
  EXPECT_THAT(Drain(*provider, reads_), ElementsAre(2));
  EXPECT_THAT(reads_.submitted(), ElementsAre(At(kFirst, 1), At(kSecond, 4), At(kSecond, 2)));
}

// A device that takes one read at a time still has the rest of a record that failed, so that a guess waits in the queue.
class BehindAFailure : public Prefetch {
 protected:
  // 1 has failed; its other half is being read, and a guess waits behind it.
  std::unique_ptr<CachingProvider> Make(int records, Guess guess) {
    RigParts parts;
    parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, {guess}}});
    ProviderOptions options = Records(records);
    options.split_read_bytes = 0;
    auto provider = MakeProvider(single_, options, std::move(parts));
    Routing first(kFirst, {1});
    provider->Begin(first.Get());
    EXPECT_TRUE(single_.CompleteNext(absl::DataLossError("broken")));
    EXPECT_FALSE(provider->Next()->status.ok());
    EXPECT_EQ(single_.pending().size(), 1u);
    return provider;
  }
};

TEST_F(BehindAFailure, AQueuedGuessOfAPassedLayerIsCancelled) {
  auto provider = Make(8, Likely(kSecond, 4));
  Routing second(kSecond, {2});
  provider->Begin(second.Get());
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled), 1u);
  EXPECT_THAT(Drain(*provider, single_), ElementsAre(2));
  EXPECT_THAT(RunLayer(*provider, single_, kSecond, {4}), ElementsAre(4));  // absent again, and readable
  EXPECT_EQ(provider->Stats().failed_loads, 1u);
}

TEST_F(BehindAFailure, AQueuedGuessThatIsWantedIsAWantedRead) {
  auto provider = Make(8, Likely(kSecond, 4));
  EXPECT_THAT(RunLayer(*provider, single_, kSecond, {4}), ElementsAre(4));
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kLate), 1u);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled), 0u);
}

TEST_F(BehindAFailure, AQueuedGuessGivesItsSlotToAWaitingDemand) {
  auto provider = Make(2, Likely(kThird, 4));
  EXPECT_THAT(RunLayer(*provider, single_, kSecond, {0, 1}), testing::UnorderedElementsAre(0, 1));
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled), 1u);
  EXPECT_LE(provider->Stats().cache_bytes, provider->Stats().cache_capacity_bytes);
}

TEST_F(Prefetch, GuessesTakeNothingWhileDemandsWait) {
  auto provider = Make(2, {{kFirst, {Likely(kSecond, 4)}}}, reads_);
  EXPECT_THAT(RunLayer(*provider, reads_, kFirst, {0, 1, 2}), testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(reads_.submitted(), testing::Not(testing::Contains(At(kSecond, 4))));
}

TEST_F(Prefetch, GuessesSpareWhatTheLayerWantsAndOtherGuesses) {
  auto provider = Make(4, {{kFirst, {Likely(kThird, 4)}}, {kSecond, {Likely(kThird, 5), Likely(kThird, 6)}}}, reads_);
  RunLayer(*provider, reads_, kFirst, {0});   // slots: 0, guess 4
  RunLayer(*provider, reads_, kSecond, {1});  // + 1, guess 5; guess 6 may take only 0's slot
  EXPECT_THAT(reads_.submitted(), ElementsAre(At(kFirst, 0), At(kThird, 4), At(kSecond, 1), At(kThird, 5), At(kThird, 6)));
  EXPECT_EQ(provider->Stats().evictions[0][static_cast<int>(EvictionReason::kPrefetch)], 1u);
  RunLayer(*provider, reads_, kThird, {4, 5, 6});
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 3u);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kWasted), 0u);
}

// Guesses with a budget of their own.
class Budgeted final : public ExpertPredictor {
 public:
  Budgeted(PrefetchBudget budget, std::map<LayerId, std::vector<Guess>> script) : budget_(budget), script_(std::move(script)) {}
  std::optional<PrefetchBudget> Budget(const ReadingPace& pace) const override {
    paces.push_back(pace);
    return budget_;
  }
  void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) override {
    script_.Predict(sequence, from, best_first);
  }
  mutable std::vector<ReadingPace> paces;

 private:
  const PrefetchBudget budget_;
  ScriptedPredictor script_;
};

TEST_F(Prefetch, WhatIsGuessedStaysForItsLayerWhereAnythingElseCanLeave) {
  for (const bool keep : {false, true}) {
    ManualReadBackend reads(8, store_);
    RigParts parts;
    parts.predictor = std::make_unique<Budgeted>(PrefetchBudget{.max_loads = INT_MAX, .keep_guessed = keep},
                                                 std::map<LayerId, std::vector<Guess>>{{kFirst, {Likely(kThird, 6)}}});
    auto provider = MakeProvider(reads, Records(3), std::move(parts));
    RunLayer(*provider, reads, kThird, {6});
    RunLayer(*provider, reads, kThird, {7});
    RunLayer(*provider, reads, kFirst, {0});   // 6 is the oldest, and guessed
    RunLayer(*provider, reads, kSecond, {1});  // 6 or 7 leaves
    EXPECT_EQ(std::ranges::count(ResidentExperts(*provider), ExpertKey{kThird, 6}), keep ? 1 : 0);
    RunLayer(*provider, reads, kSecond, {2, 3, 4});  // nothing else is left
    EXPECT_EQ(std::ranges::count(ResidentExperts(*provider), ExpertKey{kThird, 6}), 0);
  }
}

// HOBBIT, 3.3: layers are predicted until one lacks an expert; what lies beyond is not predicted, so not kept.
TEST_F(Prefetch, NothingIsKeptBeyondTheLayerThatLacksAGuess) {
  for (const bool lacks : {false, true}) {
    ManualReadBackend reads(8, store_);
    RigParts parts;
    Guess near = Likely(kSecond, lacks ? 5 : 7), far = Likely(kThird, 6);
    far.layer_distance = 2;
    parts.predictor =
        std::make_unique<Budgeted>(PrefetchBudget{.max_loads = INT_MAX, .first_missing_layer_only = true, .keep_guessed = true},
                                   std::map<LayerId, std::vector<Guess>>{{kFirst, {near, far}}});
    auto provider = MakeProvider(reads, Records(4), std::move(parts));
    RunLayer(*provider, reads, kThird, {6});
    RunLayer(*provider, reads, kSecond, {7});
    RunLayer(*provider, reads, kFirst, {0});
    RunLayer(*provider, reads, kSecond, {1, 2});  // 6 is the oldest
    EXPECT_EQ(std::ranges::count(ResidentExperts(*provider), ExpertKey{kThird, 6}), lacks ? 0 : 1);
  }
}

// After its layer has come it leaves like any other.
TEST_F(Prefetch, WhatWasGuessedIsNotKeptLonger) {
  RigParts parts;
  parts.predictor = std::make_unique<Budgeted>(PrefetchBudget{.max_loads = INT_MAX, .keep_guessed = true},
                                               std::map<LayerId, std::vector<Guess>>{{kFirst, {Likely(kSecond, 6)}}});
  auto provider = MakeProvider(reads_, Records(3), std::move(parts));
  RunLayer(*provider, reads_, kSecond, {6});
  RunLayer(*provider, reads_, kFirst, {0});
  RunLayer(*provider, reads_, kSecond, {1});
  RunLayer(*provider, reads_, kThird, {2});
  EXPECT_EQ(std::ranges::count(ResidentExperts(*provider), ExpertKey{kSecond, 6}), 0);
}

// A layer computes for 35, a record is read in 10.
TEST_F(Prefetch, PredictorsAreToldHowManyReadsALayerHides) {
  FakeClock clock;
  RigParts parts;
  auto predictor = std::make_unique<Budgeted>(PrefetchBudget{}, std::map<LayerId, std::vector<Guess>>{});
  const Budgeted& told = *predictor;
  parts.predictor = std::move(predictor);
  parts.clock = &clock;
  auto provider = MakeProvider(reads_, Records(24), std::move(parts));
  for (int i = 0; i < 30; ++i) {
    Routing routing(kLayers[i % 3], {i / 3 % 8});
    provider->Begin(routing.Get());
    if (i < 24) clock.AdvanceNanos(10);
    Drain(*provider, reads_);
    clock.AdvanceNanos(i < 24 ? 25 : 35);
  }
  EXPECT_EQ(told.paces.front().records_a_layer, 0);
  EXPECT_NEAR(told.paces.back().records_a_layer, 3.5, .5);
  EXPECT_EQ(told.paces.back().phase, Phase::kDecode);
}

TEST_F(Prefetch, NoRoomForAGuessLeavesEverythingAlone) {
  auto provider = Make(3, {{kFirst, {Likely(kSecond, 4)}}}, reads_);
  RunLayer(*provider, reads_, kFirst, {0, 1, 2});
  EXPECT_EQ(reads_.submitted().size(), 3u);
  EXPECT_EQ(Lookups(*provider)[1], 3u);
}

TEST_F(Prefetch, AGuessEvictedUnusedIsWasted) {
  auto provider = Make(2, {{kFirst, {Likely(kSecond, 4)}}}, reads_);
  RunLayer(*provider, reads_, kFirst, {0});
  RunLayer(*provider, reads_, kSecond, {1, 2});
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kWasted), 1u);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 0u);
  EXPECT_EQ(provider->Stats().wasted_prefetch_bytes, ExpertStore::Get().record_bytes());
  EXPECT_EQ(provider->Stats().prefetch_saved_seconds, 0);
}

TEST_F(Prefetch, AtMostTheAllowedNumberALayer) {
  RigParts parts;
  std::vector<Guess> guesses;
  for (int e = 0; e < kExperts; ++e) guesses.push_back(Likely(kSecond, e));
  parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, guesses}});
  ProviderOptions options = Records(24);
  options.max_prefetch_loads = 3;
  auto provider = MakeProvider(reads_, options, std::move(parts));
  RunLayer(*provider, reads_, kFirst, {0});
  EXPECT_EQ(reads_.submitted().size(), 1u + 3u);
}

TEST_F(Prefetch, TheBestGuessOfEverySequenceComesFirst) {
  // Each sequence's own order holds, whatever the probabilities of the other.
  class BySession final : public ExpertPredictor {
   public:
    void Predict(SequenceId sequence, LayerId, std::vector<Guess>& best_first) override {
      if (sequence == kSession) {
        best_first.insert(best_first.end(), {{{kSecond, 0}, .9f}, {{kSecond, 1}, .8f}});
      } else {
        best_first.insert(best_first.end(), {{{kSecond, 2}, .3f}, {{kSecond, 3}, .2f}});
      }
    }
  };
  RigParts parts;
  parts.predictor = std::make_unique<BySession>();
  ProviderOptions options = Records(24);
  options.max_prefetch_loads = 3;
  auto provider = MakeProvider(reads_, options, std::move(parts));
  provider->OnSequenceStart(SequenceId(2));
  Routing routing(kFirst, {7});
  routing.Add(SequenceId(2), {7});
  provider->Begin(routing.Get());
  Drain(*provider, reads_);
  EXPECT_THAT(reads_.submitted(), ElementsAre(At(kFirst, 7), At(kSecond, 0), At(kSecond, 2), At(kSecond, 1)));
}

// Guesses of a paced predictor are read only while that pays.
TEST_F(Prefetch, PacedGuessesAreReadWhereTheDiskIsIdleLongEnough) {
  class Paced final : public ExpertPredictor {
   public:
    explicit Paced(const bool& guessing) : guessing_(guessing) {}
    bool paced() const override { return true; }
    void Predict(SequenceId, LayerId from, std::vector<Guess>& best_first) override {
      if (!guessing_ || from != kFirst) return;
      for (const int32_t expert : {6, 7}) best_first.push_back({{kSecond, expert}, 0.9f});
    }

   private:
    const bool& guessing_;
  };
  FakeClock clock;
  bool guessing = false;
  RigParts parts;
  parts.predictor = std::make_unique<Paced>(guessing);
  parts.clock = &clock;
  auto provider = MakeProvider(reads_, Records(6), std::move(parts));
  // `free` of time without demands follows each read of 10.
  const auto run = [&](int layers, int64_t free) {
    for (int i = 0; i < layers; ++i) {
      Routing routing(kLayers[i % 3], {i / 3 % 6});  // always a miss
      provider->Begin(routing.Get());
      clock.AdvanceNanos(10);
      Drain(*provider, reads_);
      clock.AdvanceNanos(free);
    }
  };
  const auto guesses_read = [&] {
    return std::ranges::count(reads_.submitted(), At(kSecond, 6)) + std::ranges::count(reads_.submitted(), At(kSecond, 7));
  };
  guessing = true;
  run(300, 0);
  EXPECT_EQ(guesses_read(), 0);  // no time is free
  guessing = false;
  run(300, 10);
  guessing = true;

  Routing routing(kFirst, {6, 7});
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 6), At(kFirst, 7)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 7)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 6)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 7)));
  Drain(*provider, reads_);
  EXPECT_EQ(guesses_read(), 2);
}

}  // namespace prefetch_test
}  // namespace moed
