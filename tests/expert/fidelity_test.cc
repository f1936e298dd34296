// Rules that lower and skip, and masks, through the provider.
#include "tests/expert/provider_rig.h"

namespace moed {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr LayerId kFirst(0);

// Below half of the mass at full precision, the next at the lower one, the rest not at all; residents are never skipped.
class LowerThenSkip final : public FidelityRule {
 public:
  void Resolve(LayerId layer, std::span<const WantedExpert> wanted, const ResidencyView& residents,
               std::span<Action> actions) const override {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].mass_before < .5f || residents.Resident({layer, wanted[i].expert})) continue;
      actions[i] = wanted[i].mass_before < .75f ? Action{ActionKind::kUse, 1} : Action{ActionKind::kSkip};
    }
  }
};

TEST(Fidelity, ExactUsesTheReferencePrecisionAlways) {
  auto rule = MakeFidelityRule("exact", StoreContext()).value();
  const WantedExpert wanted[] = {{0, .6f, 0}, {1, .1f, .9f}};
  Action actions[] = {{ActionKind::kSkip, 1}, {ActionKind::kSkip, 1}};
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  class Nothing final : public ResidencyView {
    bool Resident(CachedKey) const override { return false; }
    bool Loading(CachedKey) const override { return false; }
  };
  rule->Resolve(kFirst, wanted, Nothing(), actions);
  for (const Action& action : actions) {
    EXPECT_EQ(action.kind, ActionKind::kUse);
    EXPECT_EQ(action.precision, kReferencePrecision);
  }
}

TEST(Fidelity, LoweredAndSkippedExpertsAreCounted) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  RigParts parts;
  parts.fidelity = std::make_unique<LowerThenSkip>();
  auto provider = MakeProvider(*backend, Records(2), std::move(parts));
  provider->OnSequenceStart(SessionId(2));
  // Probabilities .5 .25 .125: the mass before them is 0, .5, .75. The second sequence puts 3 first.
  Routing routing(kFirst, {1, 2, 3, 4});
  routing.Add(SessionId(2), {3, 5});
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
  EXPECT_EQ(provider->sequence_counters(SessionId(2)).lowered, 1u);
  EXPECT_EQ(provider->sequence_counters(SessionId(2)).skipped, 0u);
  EXPECT_THAT(Lookups(*provider), ElementsAre(0, 4, 0));  // a skipped expert is not looked up
  EXPECT_LE(provider->Stats().cache_bytes, provider->Stats().cache_capacity_bytes);
}

TEST(Fidelity, ARuleSeesWhatIsResident) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  RigParts parts;
  parts.fidelity = std::make_unique<LowerThenSkip>();
  auto provider = MakeProvider(*backend, Records(8), std::move(parts));
  RunLayer(*provider, kFirst, {4});
  EXPECT_THAT(RunLayer(*provider, kFirst, {1, 2, 3, 4}).experts, UnorderedElementsAre(1, 2, 4));
}

TEST(Fidelity, RecordsOfTwoSizesShareTheCapacity) {
  // Every second visit is lowered, so that slots of both sizes come and go.
  class Alternate final : public FidelityRule {
   public:
    void Resolve(LayerId, std::span<const WantedExpert> wanted, const ResidencyView&, std::span<Action> actions) const override {
      for (size_t i = 0; i < wanted.size(); ++i) actions[i].precision = visits_++ % 3 == 0 ? 1 : 0;
    }

   private:
    mutable int visits_ = 0;
  };
  for (const int records : {1, 2, 3, 7}) {
    auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
    RigParts parts;
    parts.fidelity = std::make_unique<Alternate>();
    auto provider = MakeProvider(*backend, Records(records), std::move(parts));
    for (int step = 0; step < 40; ++step) {
      const Delivered delivered =
          RunLayer(*provider, kLayers[step % 3], {step % 8, (step + 3) % 8, (step + 5) % 8, (step + 6) % 8});
      EXPECT_EQ(delivered.experts.size(), 4u);
      EXPECT_LE(provider->Stats().cache_bytes, provider->Stats().cache_capacity_bytes);
    }
  }
}

TEST(RouterMasks, NoneLeavesTheLogitsAlone) {
  ManualReadBackend reads;
  auto provider = MakeProvider(reads, Records(1));
  std::vector<float> logits = {1, -2, 3};
  provider->MaskRouter(kFirst, logits);
  EXPECT_THAT(logits, ElementsAre(1, -2, 3));
}

}  // namespace
}  // namespace moed
