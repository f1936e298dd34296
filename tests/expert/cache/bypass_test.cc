// A policy that does not admit: what it refuses is served from slots of its own.
#include "tests/expert/provider_rig.h"

namespace moed {
namespace bypass_test {

// Keeps whatever came first.
class NeverEvict final : public EvictionPolicy {
 public:
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey key, uint64_t) override { inserted_.push_back(key); }
  void OnEvict(CachedKey key) override { EXPECT_EQ(std::erase(inserted_, key), 1u); }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)>) override { return std::nullopt; }

 private:
  std::vector<CachedKey> inserted_;
};

std::unique_ptr<CachingProvider> MakeRefusing(ReadBackend& reads, int records,
                                              std::map<LayerId, std::vector<Guess>> script = {}) {
  RigParts parts;
  parts.policy = std::make_unique<NeverEvict>();
  parts.predictor = std::make_unique<ScriptedPredictor>(std::move(script));
  return MakeProvider(reads, Records(records), std::move(parts));
}

TEST(Bypass, ServesWhatIsRefusedInsideTheCapacity) {
  for (const int records : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(StrCat(records, " records"));
    auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
    auto provider = MakeRefusing(*backend, records);
    for (int round = 0; round < 4; ++round) {
      for (const LayerId layer : kLayers) {
        const Delivered delivered = RunLayer(*provider, layer, {0, 1, 2, 3, 4, 5});
        EXPECT_EQ(delivered.experts.size(), 6u);
        EXPECT_TRUE(delivered.failures.empty());
        EXPECT_LE(provider->Stats().cache_bytes, provider->Stats().cache_capacity_bytes);
      }
    }
  }
}

TEST(Bypass, WhatIsPinnedMeanwhileComesBack) {
  const ExpertKey refused{kSecond, 1};
  ManualReadBackend reads(4, StoreFile());
  auto provider = MakeRefusing(reads, 8);
  RunLayer(*provider, reads, kFirst, {0, 1, 2, 3, 4, 5, 6, 7});
  RunLayer(*provider, reads, kSecond, {1});
  ASSERT_FALSE(std::ranges::count(ResidentExperts(*provider), refused));
  Routing routing(kSecond, {1});
  provider->Begin(routing.Get());
  ASSERT_TRUE(provider->Pin(std::vector{CachedKey{refused.layer, refused.expert, kReferencePrecision}}).ok());
  Drain(*provider, reads);
  EXPECT_EQ(provider->Stats().bypass_loads, 2u);
  reads.CompleteAll();
  EXPECT_TRUE(std::ranges::count(ResidentExperts(*provider), refused));
}

TEST(Bypass, WhatIsRefusedDoesNotStay) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeRefusing(*backend, 3);  // one record is kept for what is refused
  RunLayer(*provider, kFirst, {0, 1, 2});
  EXPECT_EQ(provider->Stats().bypass_loads, 0u);
  RunLayer(*provider, kFirst, {5});
  EXPECT_EQ(provider->Stats().bypass_loads, 1u);
  const std::vector<ExpertKey> admitted = ResidentExperts(*provider);
  EXPECT_EQ(admitted.size(), 2u);
  for (const int expert : {5, 6, 7, 5}) {
    RunLayer(*provider, kFirst, {expert});
    EXPECT_EQ(ResidentExperts(*provider), admitted);
  }
  EXPECT_EQ(provider->Stats().bypass_loads, 5u);
  EXPECT_EQ(Lookups(*provider)[0], 0u);
  EXPECT_EQ(provider->Stats().evictions[0][static_cast<int>(EvictionReason::kDemand)], 1u);
}

TEST(Bypass, TheNextIsReadWhileOneIsUsedWhereThereIsRoom) {
  ManualReadBackend reads(8, StoreFile());
  auto provider = MakeRefusing(reads, 4);
  Routing fill(kFirst, {0, 1, 2, 3});
  provider->Begin(fill.Get());
  reads.CompleteAll();
  while (provider->Next()) {
  }
  Routing routing(kFirst, {4, 5, 6});
  provider->Begin(routing.Get());
  EXPECT_EQ(reads.pending().size(), 2u);
  ASSERT_TRUE(reads.CompleteNext());
  {
    const auto used = provider->Next();
    EXPECT_EQ(reads.pending().size(), 1u);
  }
  EXPECT_EQ(reads.pending().size(), 2u);
  reads.CompleteAll();
  while (provider->Next()) {
  }
}

TEST(Bypass, ARefusedGuessIsNotRead) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeRefusing(*backend, 2, {{kFirst, {{{LayerId(2), 4}, .5f}}}});
  RunLayer(*provider, LayerId(3), {0, 1});
  RunLayer(*provider, kFirst, {2});
  const ExpertStats stats = provider->Stats();
  EXPECT_EQ(stats.loads[static_cast<int>(LoadReason::kPrefetch)].count, 0u);
  EXPECT_EQ(stats.bypass_loads, 1u);
}

TEST(Bypass, AFailedReadLeavesTheSlotToTheNext) {
  const auto file = StoreFile();
  auto backend = MakeThreadedReadBackend("lying", file, 1);
  auto provider = MakeRefusing(*backend, 2);
  RunLayer(*provider, kFirst, {0, 1});
  file->FlipBit(ExpertStore::Get().OffsetOf(kFirst, 5), 0);
  for (int i = 0; i < 3; ++i) {
    const Delivered delivered = RunLayer(*provider, kFirst, {5, 6});
    EXPECT_EQ(delivered.failures.size(), 1u);
    EXPECT_EQ(delivered.experts.size(), 2u);
  }
}

}  // namespace bypass_test
}  // namespace moed
