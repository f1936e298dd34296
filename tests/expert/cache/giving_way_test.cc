// Guesses that give way while they are read: to demands, and to better guesses.
#include <array>
#include <utility>

#include "tests/expert/cache/prefetch_rig.h"

namespace moed {
namespace giving_way_test {

using testing::ElementsAre;

// Whose probabilities are true.
class Paced final : public ExpertPredictor {
 public:
  explicit Paced(std::vector<Guess> guesses) : script_({{kFirst, std::move(guesses)}}) {}
  bool paced() const override { return true; }
  void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) override {
    script_.Predict(sequence, from, best_first);
  }

 private:
  ScriptedPredictor script_;
};

// Guesses that give way, in pieces of a page. A layer leaves the device free for five times as long as a record takes.
class GivingWay : public Prefetch {
 protected:
  // The first layer is routed, and what is likely for the others is being read.
  std::unique_ptr<CachingProvider> BeginReading(std::vector<Guess> guesses) {
    return BeginReading(std::make_unique<Paced>(std::move(guesses)));
  }
  std::unique_ptr<CachingProvider> BeginReading(std::unique_ptr<ExpertPredictor> predictor) {
    RigParts parts;
    parts.predictor = std::move(predictor);
    parts.clock = &clock_;
    ProviderOptions options = Records(24);
    options.queue.idle_piece_bytes = kPageBytes;
    auto provider = MakeProvider(reads_, options, std::move(parts));
    for (int i = 0; i < 40; ++i) {
      Routing routing(i % 2 == 0 ? kSecond : kThird, {i % 2 == 0 ? 7 : i / 2 % 4});
      provider->Begin(routing.Get());
      clock_.AdvanceNanos(10);
      Drain(*provider, reads_);
      clock_.AdvanceNanos(50);
    }
    RunLayerUntilRead(*provider, kFirst, 1);
    return provider;
  }
  void RunLayerUntilRead(CachingProvider& provider, LayerId layer, int expert) {
    Routing routing(layer, {expert});
    provider.Begin(routing.Get());
    while (reads_.Complete(At(layer, expert))) clock_.AdvanceNanos(10);
    while (auto ready = provider.Next()) {
    }
  }
  static uint64_t Piece(LayerId layer, int expert, int piece) { return At(layer, expert) + piece * kPageBytes; }

  FakeClock clock_;
};

TEST_F(GivingWay, NoMoreIsReadOfAGuessThatIsKnownToBeWrong) {
  auto provider = BeginReading({Sure(kSecond, 4)});
  ASSERT_TRUE(reads_.Complete(Piece(kSecond, 4, 0)));
  Routing second(kSecond, {2});
  provider->Begin(second.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kSecond, 4, 1), Piece(kSecond, 4, 2), At(kSecond, 2)));
  EXPECT_THAT(Drain(*provider, reads_), ElementsAre(2));
  EXPECT_THAT(reads_.submitted(), testing::Not(testing::Contains(Piece(kSecond, 4, 3))));
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled), 1u);
  EXPECT_EQ(provider->Stats().failed_loads, 0u);
  EXPECT_EQ(provider->Stats().wasted_prefetch_bytes, 3 * kPageBytes);
  EXPECT_EQ(provider->Stats().load_bytes[kReferencePrecision][static_cast<int>(LoadReason::kPrefetch)], 3 * kPageBytes);
  EXPECT_THAT(RunLayer(*provider, reads_, kSecond, {4}), ElementsAre(4));  // absent, and readable
}

TEST_F(GivingWay, WhatIsLeftOfAGuessThatIsWantedIsAWantedRead) {
  auto provider = BeginReading({Sure(kSecond, 4)});
  Routing second(kSecond, {4});
  provider->Begin(second.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kSecond, 4, 0), Piece(kSecond, 4, 1), Piece(kSecond, 4, 2)));
  EXPECT_THAT(Drain(*provider, reads_), ElementsAre(4));
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kLate), 1u);
}

TEST_F(GivingWay, AGuessForALaterLayerGoesOnAfterTheDemands) {
  Guess far = Sure(kThird, 6);
  far.layer_distance = 2;
  auto provider = BeginReading({far});
  Routing second(kSecond, {2});
  provider->Begin(second.Get());
  for (int piece = 0; piece < 2; ++piece) ASSERT_TRUE(reads_.Complete(Piece(kThird, 6, piece)));
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kSecond, 2)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kThird, 6, 2), Piece(kThird, 6, 3)));
  Drain(*provider, reads_);
}

// Who has thought better of it once the first layer's experts are computed.
class OnSecondThought final : public ExpertPredictor {
 public:
  OnSecondThought(std::vector<Guess> first, std::vector<Guess> then) : guesses_{std::move(first), std::move(then)} {}
  bool paced() const override { return true; }
  bool wants_previews() const override { return true; }
  void OnGatePreview(SequenceId, LayerId, std::span<const float>) override { previewed_ = true; }
  void Predict(SequenceId, LayerId from, std::vector<Guess>& best_first) override {
    const std::vector<Guess>& now = guesses_[std::exchange(previewed_, false) ? 1 : 0];
    if (from == kFirst) best_first.insert(best_first.end(), now.begin(), now.end());
  }

 private:
  const std::array<std::vector<Guess>, 2> guesses_;
  bool previewed_ = false;
};

TEST_F(GivingWay, APreviewReplacesTheGuesses) {
  Guess far = Sure(kThird, 6);
  far.layer_distance = 2;
  struct {
    std::vector<Guess> first, then;
    std::vector<uint64_t> read;  // next, after the first piece of the first guess and what was under way
    uint64_t given_up;
  } const cases[] = {
      {{Sure(kSecond, 4)}, {Sure(kSecond, 5)}, {Piece(kSecond, 5, 0), Piece(kSecond, 5, 1)}, 1},
      {{Sure(kSecond, 4)}, {}, {}, 1},
      {{Sure(kSecond, 4)}, {Sure(kSecond, 5), Sure(kSecond, 4)}, {Piece(kSecond, 4, 3), Piece(kSecond, 4, 4)}, 0},
      {{far}, {Sure(kSecond, 5)}, {Piece(kThird, 6, 3), Piece(kThird, 6, 4)}, 0},  // it may still be wanted
      {{Sure(kSecond, 4), Sure(kSecond, 5)}, {Sure(kSecond, 4)}, {Piece(kSecond, 4, 3), Piece(kSecond, 4, 4)}, 0},
  };
  for (const auto& [first, then, read, given_up] : cases) {
    SCOPED_TRACE(testing::PrintToString(read));
    auto provider = BeginReading(std::make_unique<OnSecondThought>(first, then));
    ASSERT_TRUE(provider->WantsPreview());
    ASSERT_TRUE(reads_.CompleteNext());
    const float hidden = 0;
    provider->OnGatePreview(kSession, kSecond, {&hidden, 1});
    provider->OnPreviewed();
    for (int piece = 1; piece < 3; ++piece) ASSERT_TRUE(reads_.CompleteNext());
    EXPECT_THAT(reads_.pending(), testing::ElementsAreArray(read));
    EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled), given_up);
    Drain(*provider, reads_);
  }
}

TEST_F(GivingWay, APreviewIsWantedInAnswersByWhoGuessesWithIt) {
  const std::vector<Guess> guesses = {Sure(kSecond, 4)};
  for (const bool with_it : {true, false}) {
    std::unique_ptr<ExpertPredictor> predictor = std::make_unique<Paced>(guesses);
    if (with_it) predictor = std::make_unique<OnSecondThought>(guesses, guesses);
    auto provider = BeginReading(std::move(predictor));
    EXPECT_EQ(provider->WantsPreview(), with_it);
    Drain(*provider, reads_);
    Routing prompt(kSecond, {1}, Phase::kPrefill);
    provider->Begin(prompt.Get());
    EXPECT_FALSE(provider->WantsPreview());
    Drain(*provider, reads_);
  }
}

// Nothing was read yet, so that nobody knows whether a guess would pay.
TEST_F(GivingWay, NoPreviewIsWantedWhereGuessesDoNotPay) {
  RigParts parts;
  parts.predictor = std::make_unique<OnSecondThought>(std::vector{Sure(kSecond, 4)}, std::vector<Guess>());
  auto provider = MakeProvider(reads_, Records(24), std::move(parts));
  Routing routing(kFirst, {1});
  provider->Begin(routing.Get());
  EXPECT_FALSE(provider->WantsPreview());
  Drain(*provider, reads_);
}

}  // namespace giving_way_test
}  // namespace moed
