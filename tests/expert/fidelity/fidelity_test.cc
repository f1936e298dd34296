// Rules that lower and skip, and masks, through the provider.
#include "tests/expert/provider_rig.h"

namespace moed {
namespace fidelity_test {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// Below half of the mass at full precision, the next at the lower one, the rest not at all; residents are never skipped.
class LowerThenSkip final : public FidelityRule {
 public:
  void Resolve(const LayerDemand& demand, std::span<Action> actions) override {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (demand.wanted[i].mass_before < .5f || demand.Resident(demand.wanted[i])) continue;
      actions[i] = demand.wanted[i].mass_before < .75f ? Action{ActionKind::kUse, 1} : Action{ActionKind::kSkip};
    }
  }
};

Delivered RunLossy(CachingProvider& provider, LayerId layer, std::vector<int32_t> experts) {
  Routing routing(layer, std::move(experts), Phase::kDecode, Fidelity::Fast());
  return RunLayer(provider, routing);
}

TEST(Fidelity, AnExactSequenceIsServedExactlyBesideAFastOne) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  RigParts parts;
  parts.fidelity = std::make_unique<LowerThenSkip>();
  auto provider = MakeProvider(*backend, Records(3), std::move(parts));
  provider->OnSequenceStart(SequenceId(2));
  for (int step = 0; step < 20; ++step) {
    Routing routing(kLayers[step % 3], {1, 2, 3, 4}, Phase::kDecode, Fidelity::Fast());
    routing.Add(SequenceId(2), {step % 5, 5, 4 + 2 * (step % 2)});
    provider->Begin(routing.Get());
    std::map<int32_t, Precision> used;
    while (auto ready = provider->Next()) {
      ExpectRightBytes(*ready, kLayers[step % 3]);
      used[ready->expert] = ready->precision;
    }
    for (const int32_t expert : {step % 5, 5, 4 + 2 * (step % 2)}) {
      ASSERT_TRUE(used.contains(expert));
      EXPECT_EQ(used[expert], kReferencePrecision);
    }
  }
  EXPECT_GT(provider->sequence_counters(kSession).lowered, 0u);
  const SequenceCounters exact = provider->sequence_counters(SequenceId(2));
  EXPECT_EQ(exact.lowered + exact.skipped + exact.masked, 0u);
  EXPECT_EQ(exact.gate_mass_lost, 0);
}

// Takes everything as it is wanted and remembers what it was told.
class ReuseHeard final : public FidelityRule {
 public:
  explicit ReuseHeard(double& reuse) : reuse_(reuse) {}
  void Resolve(const LayerDemand& demand, std::span<Action>) override { reuse_ = demand.prices.reuse; }

 private:
  double& reuse_;
};

TEST(Fidelity, RulesHearHowOftenARecordIsUsedAgainBeforeItLeaves) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  double heard = 0;
  RigParts parts;
  parts.fidelity = std::make_unique<ReuseHeard>(heard);
  auto provider = MakeProvider(*backend, Records(2), std::move(parts));
  const auto reuse_before = [&](int32_t expert) {
    RunLossy(*provider, kFirst, {expert});
    return heard;
  };
  for (const int32_t expert : {1, 2, 1, 3}) EXPECT_EQ(reuse_before(expert), 1);
  const double after_one_left = reuse_before(4);
  EXPECT_LT(after_one_left, 1) << "2 was used once; 1 leaves now, used twice";
  EXPECT_EQ(reuse_before(4), after_one_left);
  EXPECT_GT(reuse_before(4), after_one_left) << "4 was used again";
  const double in_the_end = reuse_before(4);
  EXPECT_EQ(reuse_before(4), in_the_end) << "of each stay once";
}

TEST(Fidelity, LoweredAndSkippedExpertsAreCounted) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  RigParts parts;
  parts.fidelity = std::make_unique<LowerThenSkip>();
  auto provider = MakeProvider(*backend, Records(2), std::move(parts));
  provider->OnSequenceStart(SequenceId(2));
  // Probabilities 8 4 2 1 of 15: the mass before them is 0, 8, 12, 14 of 15. The second sequence puts 3 first: 0, 2 of 3.
  Routing routing(kFirst, {1, 2, 3, 4}, Phase::kDecode, Fidelity::Fast());
  routing.Add(SequenceId(2), {3, 5}, Phase::kDecode, Fidelity::Fast());
  provider->Begin(routing.Get());
  std::map<int32_t, Precision> used;
  while (auto ready = provider->Next()) {
    ExpectRightBytes(*ready, kFirst);
    used[ready->expert] = ready->precision;
  }
  EXPECT_THAT(used, ElementsAre(testing::Pair(1, 0), testing::Pair(2, 1), testing::Pair(3, 0), testing::Pair(5, 1)));
  const LayerStats stats = provider->Stats().layers[0];
  EXPECT_EQ(stats.lowered, 2u);
  EXPECT_EQ(stats.skipped, 1u);
  EXPECT_EQ(provider->sequence_counters(kSession).lowered, 1u);
  EXPECT_EQ(provider->sequence_counters(kSession).skipped, 1u);
  EXPECT_EQ(provider->sequence_counters(SequenceId(2)).lowered, 1u);
  EXPECT_EQ(provider->sequence_counters(SequenceId(2)).skipped, 0u);
  EXPECT_FLOAT_EQ(static_cast<float>(provider->sequence_counters(kSession).gate_mass_lost), (4 + 1) / 15.f);
  EXPECT_FLOAT_EQ(static_cast<float>(provider->sequence_counters(SequenceId(2)).gate_mass_lost), 1 / 3.f);
  EXPECT_FLOAT_EQ(static_cast<float>(stats.gate_mass_lost), 5 / 15.f + 1 / 3.f);
  EXPECT_EQ(stats.tokens, 2u);
  EXPECT_THAT(Lookups(*provider), ElementsAre(0, 4, 0));  // a skipped expert is not looked up
  const std::vector<ExpertCell> cells = provider->ChangedExperts(0).layers[0].experts;
  std::vector<std::array<uint64_t, 2>> lost;
  for (const int expert : {1, 2, 3, 4, 5}) lost.push_back({cells[expert].lowered, cells[expert].skipped});
  using Lost = std::array<uint64_t, 2>;
  EXPECT_THAT(lost, ElementsAre(Lost{0, 0}, Lost{1, 0}, Lost{0, 0}, Lost{0, 1}, Lost{1, 0}));
  EXPECT_LE(provider->Stats().cache_bytes, provider->Stats().cache_capacity_bytes);
}

TEST(Fidelity, ARuleSeesWhatIsResident) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  RigParts parts;
  parts.fidelity = std::make_unique<LowerThenSkip>();
  auto provider = MakeProvider(*backend, Records(8), std::move(parts));
  RunLayer(*provider, kFirst, {4});
  EXPECT_THAT(RunLossy(*provider, kFirst, {1, 2, 3, 4}).experts, UnorderedElementsAre(1, 2, 4));
}

TEST(Fidelity, RecordsOfTwoSizesShareTheCapacity) {
  // Every second visit is lowered, so that slots of both sizes come and go.
  class Alternate final : public FidelityRule {
   public:
    void Resolve(const LayerDemand&, std::span<Action> actions) override {
      for (Action& action : actions) action.precision = visits_++ % 3 == 0 ? 1 : 0;
    }

   private:
    int visits_ = 0;
  };
  for (const int records : {1, 2, 3, 7}) {
    auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
    RigParts parts;
    parts.fidelity = std::make_unique<Alternate>();
    auto provider = MakeProvider(*backend, Records(records), std::move(parts));
    for (int step = 0; step < 40; ++step) {
      const Delivered delivered =
          RunLossy(*provider, kLayers[step % 3], {step % 8, (step + 3) % 8, (step + 5) % 8, (step + 6) % 8});
      EXPECT_EQ(delivered.experts.size(), 4u);
      EXPECT_LE(provider->Stats().cache_bytes, provider->Stats().cache_capacity_bytes);
    }
  }
}

}  // namespace fidelity_test
}  // namespace moed
