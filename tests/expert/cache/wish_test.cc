// What the policy wishes for is read between tokens, and while nothing else is.
#include <optional>
#include <utility>

#include "tests/expert/cache/prefetch_rig.h"

namespace moed {
namespace wish_test {

using testing::ElementsAre;

// Evicts as `lru` does, and wishes for `wanted`, each of which is 0.7 likely.
class Wishing final : public EvictionPolicy {
 public:
  explicit Wishing(std::vector<CachedKey> wanted) : wanted_(std::move(wanted)) {}
  void OnAccess(CachedKey key, const AccessContext& context) override { lru_->OnAccess(key, context); }
  void OnInsert(CachedKey key, uint64_t bytes) override { lru_->OnInsert(key, bytes); }
  void OnEvict(CachedKey key) override { lru_->OnEvict(key); }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return lru_->Victim(incoming, evictable);
  }
  std::optional<CachedKey> Wish(LayerId, float least_probability, absl::FunctionRef<bool(CachedKey)> absent,
                                absl::FunctionRef<bool(CachedKey)>) override {
    const auto found = std::ranges::find_if(wanted_, absent);
    return found == wanted_.end() || least_probability > 0.7f ? std::nullopt : std::optional(*found);
  }

 private:
  const std::vector<CachedKey> wanted_;
  const std::unique_ptr<EvictionPolicy> lru_ = MakePolicy("lru", {StoreContext()}).value();
};

class Pace final : public ExpertPredictor {
 public:
  explicit Pace(bool paced) : paced_(paced) {}
  bool paced() const override { return paced_; }
  void Predict(SequenceId, LayerId, std::vector<Guess>&) override {}

 private:
  const bool paced_;
};

// A record is read in 10. The cache has room for four.
class Wish : public Prefetch {
 protected:
  // Some tokens have passed, `between_nanos` after each other, and what was wished for has left again.
  std::unique_ptr<CachingProvider> Make(std::vector<CachedKey> wanted, int64_t between_nanos, bool paced = true) {
    RigParts parts;
    parts.policy = std::make_unique<Wishing>(std::move(wanted));
    parts.predictor = std::make_unique<Pace>(paced);
    parts.clock = &clock_;
    parts.encoder_positions = encoder_positions_;
    ProviderOptions options = Records(4);
    options.queue.idle_piece_bytes = kPageBytes;
    auto provider = MakeProvider(reads_, options, std::move(parts));
    for (int i = 0; i < 120; ++i) {
      Routing routing(kLayers[i % 3], {i / 3 % 4});
      provider->Begin(routing.Get());
      clock_.AdvanceNanos(10);
      Drain(*provider, reads_);
      if (i % 3 == 2) clock_.AdvanceNanos(between_nanos);
    }
    RunLayer(*provider, reads_, kSecond, {1, 2, 3, 4});
    return provider;
  }
  // A layer whose demand is read, and nothing else.
  void RunDemand(CachingProvider& provider, LayerId layer, int expert, Phase phase = Phase::kDecode) {
    Routing routing(layer, {expert}, phase);
    provider.Begin(routing.Get());
    ASSERT_TRUE(reads_.Complete(At(layer, expert)));
    while (auto ready = provider.Next()) {
    }
  }
  static uint64_t Piece(LayerId layer, int expert, int piece) { return At(layer, expert) + piece * kPageBytes; }

  FakeClock clock_;
  int encoder_positions_ = 0;
};

const CachedKey kWish{kSecond, 6};

TEST_F(Wish, IsReadAfterTheDemandsOfTheLastLayer) {
  auto provider = Make({kWish}, 50);
  RunDemand(*provider, kFirst, 5);
  EXPECT_THAT(reads_.pending(), ElementsAre());
  Routing last(kThird, {5, 6});
  provider->Begin(last.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kThird, 5), At(kThird, 6)));
  ASSERT_TRUE(reads_.Complete(At(kThird, 5)));
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kThird, 6)));
  ASSERT_TRUE(reads_.Complete(At(kThird, 6)));
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kSecond, 6, 0), Piece(kSecond, 6, 1)));
  Drain(*provider, reads_);
  RunLayer(*provider, reads_, kFirst, {5});
  RunLayer(*provider, reads_, kSecond, {6});
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 1u);
}

TEST_F(Wish, GivesWayToTheNextToken) {
  auto provider = Make({kWish}, 50);
  RunDemand(*provider, kThird, 5);
  Routing next(kFirst, {5});
  provider->Begin(next.Get());
  for (int piece = 0; piece < 2; ++piece) ASSERT_TRUE(reads_.Complete(Piece(kSecond, 6, piece)));
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 5)));
  ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kSecond, 6, 2), Piece(kSecond, 6, 3)));
  Drain(*provider, reads_);
}

TEST_F(Wish, OneAfterTheOther) {
  auto provider = Make({kWish, {kThird, 7}}, 50);
  RunDemand(*provider, kThird, 5);
  while (reads_.pending().front() < At(kSecond, 7)) ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kThird, 7, 0), Piece(kThird, 7, 1)));
  while (!reads_.pending().empty()) ASSERT_TRUE(reads_.CompleteNext());
  std::vector<CachedKey> residents;
  for (const ExpertHeat& heat : provider->ResidentRecords()) residents.push_back(heat.key);
  EXPECT_THAT(residents, testing::IsSupersetOf({kWish, CachedKey{kThird, 7}}));
}

// Its layer has come: it is joined where it is wanted, and else given up.
TEST_F(Wish, EndsWithItsLayer) {
  for (const bool wanted : {false, true}) {
    auto provider = Make({{kFirst, 6}}, 50);
    RunDemand(*provider, kThird, 5);
    const uint64_t late = Outcomes(*provider, PrefetchOutcome::kLate),
                   given_up = Outcomes(*provider, PrefetchOutcome::kCancelled);
    Routing next(kFirst, {wanted ? 6 : 5});
    provider->Begin(next.Get());
    Drain(*provider, reads_);
    EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kLate) - late, wanted ? 1u : 0u);
    EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled) - given_up, wanted ? 0u : 1u);
  }
}

// The token after it passes the decoder's layers alone.
TEST_F(Wish, DoesNotCountAnEncodersLayers) {
  encoder_positions_ = 1;
  auto provider = Make({kWish}, 50);
  RunDemand(*provider, kThird, 5);
  const uint64_t given_up = Outcomes(*provider, PrefetchOutcome::kCancelled);
  Routing next(kSecond, {5});
  provider->Begin(next.Get());
  Drain(*provider, reads_);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kCancelled) - given_up, 1u);
}

// Nor others, until a token has shown that the store is read.
TEST_F(Wish, OneThatCannotBeReadIsNotWishedForAgain) {
  auto provider = Make({kWish, {kThird, 7}}, 50);
  RunDemand(*provider, kThird, 5);
  const size_t submitted = reads_.submitted().size();
  ASSERT_TRUE(reads_.CompleteNext(absl::DataLossError("torn")));
  while (!reads_.pending().empty()) ASSERT_TRUE(reads_.CompleteNext());
  EXPECT_EQ(reads_.submitted().size(), submitted);
  EXPECT_EQ(provider->Stats().failed_loads, 1u);
  RunDemand(*provider, kFirst, 5);
  RunDemand(*provider, kSecond, 7);
  RunDemand(*provider, kThird, 4);
  EXPECT_THAT(reads_.pending(), ElementsAre(Piece(kSecond, 6, 0), Piece(kSecond, 6, 1)));
  Drain(*provider, reads_);
}

TEST_F(Wish, IsNobodysInAPromptNorWithoutTrueProbabilities) {
  auto paced = Make({kWish}, 50);
  RunDemand(*paced, kThird, 5, Phase::kPrefill);
  EXPECT_THAT(reads_.pending(), ElementsAre());
  auto unpaced = Make({kWish}, 50, /*paced=*/false);
  RunDemand(*unpaced, kThird, 5);
  EXPECT_THAT(reads_.pending(), ElementsAre());
}

// Nothing is free between tokens: demands would wait for longer than it is likely to save.
TEST_F(Wish, IsNotReadWhereItDoesNotPay) {
  auto provider = Make({kWish}, 0);
  RunDemand(*provider, kThird, 5);
  EXPECT_THAT(reads_.pending(), ElementsAre());
}

}  // namespace wish_test
}  // namespace moed
