// What the daemon was told arrives at its provider.
#include "server/startup/provider_builder.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/synchronization/notification.h"
#include "core/expert/residency_file.h"
#include "core/store/checksum.h"
#include "server/served_cache.h"
#include "spdlog/spdlog.h"
#include "tests/engine/scripted_engine.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace {

class ProviderBuilderTest : public testing::Test {
 protected:
  ProviderBuilderTest() {
    spdlog::set_level(spdlog::level::off);
    config_.preset.preset = "load-on-demand-lru";
    spec_.hidden = StoreParts().hidden;
    spec_.experts = kExperts;
    spec_.top_k = kTopK;
  }

  // With a cache of so many records; one sequence is started.
  CachingProvider& Open(int records, uint64_t budget = 1 << 20) {
    const MemoryPlan memory{.budget = budget, .cache = records * ExpertStore::Get().record_bytes()};
    builder_ = ProviderBuilder::Choose(config_, ExpertStore::Get().reader(), spec_).value();
    MOED_CHECK(builder_->CheckKept().ok());
    const absl::Status opened =
        builder_->Open({StoreParts().gate, *reads_, Clock::Real(), Allocator::Host(), {}, nullptr, memory});
    MOED_CHECK(opened.ok());
    builder_->provider().OnSequenceStart(kSession);
    return builder_->provider();
  }

  absl::Status CheckKept() const {
    return ProviderBuilder::Choose(config_, ExpertStore::Get().reader(), spec_).value()->CheckKept();
  }

  std::ptrdiff_t Files() const { return std::distance(std::filesystem::directory_iterator(folder_ / "."), {}); }

  MemoryFolder folder_;
  std::shared_ptr<LyingFile> file_ = StoreFile();
  std::unique_ptr<ReadBackend> reads_ = MakeThreadedReadBackend("lying", file_, 1);
  Config config_;
  ModelSpec spec_;
  std::unique_ptr<ProviderBuilder> builder_;
};

TEST_F(ProviderBuilderTest, VerifiesReadsAsOftenAsItWasTold) {
  for (const bool always : {false, true}) {
    file_->Heal();
    config_.checksums = always ? ChecksumRule::kEveryRead : ChecksumRule::kFirstRead;
    CachingProvider& provider = Open(1);
    RunLayer(provider, kFirst, {3});
    RunLayer(provider, kFirst, {4});  // takes its slot
    file_->FlipBit(ExpertStore::Get().OffsetOf(kFirst, 3), 0);
    Routing routing(kFirst, {3});
    provider.Begin(routing.Get());
    const auto ready = provider.Next();
    ASSERT_TRUE(ready.has_value());
    absl::Status status = ready->status;
    if (status.ok()) status = ready->handle.Part(ExpertPart::kGate).status();
    EXPECT_EQ(status.ok(), !always);
    EXPECT_FALSE(provider.Next().has_value());
  }
}

// A trace that is there stays, and the next one has a folder in its own.
TEST_F(ProviderBuilderTest, RecordsRoutingWhereItWasTold) {
  config_.record_routing = folder_ / "trace";
  for (const char* experts : {"trace/experts.u8", "trace/2/experts.u8", "trace/3/experts.u8"}) {
    CachingProvider& provider = Open(24);
    provider.OnToken(kSession, TokenId(0));
    for (const LayerId layer : kLayers) RunLayer(provider, layer, {0, 1, 2, 3});
    provider.OnSequenceEnd(kSession);
    ASSERT_TRUE(builder_->Finish().ok());
    EXPECT_EQ(std::filesystem::file_size(folder_ / experts), std::size(kLayers) * kTopK);
  }
}

TEST_F(ProviderBuilderTest, KeepsWhatWasLearnedWhereItWasTold) {
  config_.preset.preset = "auto";
  config_.preset.fill = false;
  config_.learned_state = folder_ / "learned";
  for (int start = 0; start < 2; ++start) {
    CachingProvider& provider = Open(24);
    provider.OnToken(kSession, TokenId(0));
    for (const LayerId layer : kLayers) RunLayer(provider, layer, {0, 1, 2, 3});
    provider.OnSequenceEnd(kSession);
    ASSERT_TRUE(builder_->Finish().ok());
    EXPECT_TRUE(std::filesystem::exists(config_.learned_state));
  }
  config_.preset.policy = "lru";
  const absl::Status other = CheckKept();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(MessageText(other), testing::HasSubstr("--learned-state"));
}

// A start reads what was in memory at the end of the one before, whether or not its preset fills; what nobody has used since is
// kept for the next one, too.
TEST_F(ProviderBuilderTest, ReadsFirstWhatWasInMemory) {
  config_.residency = folder_ / "residency";
  const ResidencyFile file{config_.residency, ExpertStore::Get().reader().model_hash()};
  const auto listed = [&] { return *ReadResidency(file, ExpertStore::Get().reader().description()); };
  CachingProvider& first = Open(5);
  ASSERT_TRUE(builder_->KeepResidency().ok());
  EXPECT_TRUE(listed().empty()) << "the file is this model's before anybody used an expert";
  for (const int expert : {2, 6, 6, 4}) RunLayer(first, kFirst, {expert});
  RunLayer(first, kThird, {1});
  ASSERT_TRUE(builder_->KeepResidency().ok());
  const std::vector<CachedKey> kept = listed();
  EXPECT_THAT(kept, testing::UnorderedElementsAre(CachedKey{kFirst, 6}, CachedKey{kFirst, 2}, CachedKey{kFirst, 4},
                                                  CachedKey{kThird, 1}));
  EXPECT_EQ(kept.front(), (CachedKey{kFirst, 6})) << "used most often";
  ASSERT_TRUE(builder_->Finish().ok());

  CachingProvider& second = Open(5);
  while (second.ResidentRecords().size() < kept.size()) std::this_thread::yield();
  EXPECT_EQ(second.ResidentRecords().size(), 4u) << "this preset fills with nothing else";
  ASSERT_TRUE(builder_->KeepResidency().ok());
  EXPECT_EQ(listed(), kept) << "nobody has used any of them yet";
  RunLayer(second, kFirst, {4});
  EXPECT_EQ(second.sequence_counters(kSession).misses, 0u);
  ASSERT_TRUE(builder_->KeepResidency().ok());
  EXPECT_EQ(listed().front(), (CachedKey{kFirst, 4}));
}

TEST_F(ProviderBuilderTest, WhatWasInMemoryOfAnotherModelStaysWhereThisOneTookItsPlace) {
  config_.residency = folder_ / "residency";
  const ResidencyFile of_another{config_.residency, ExpertStore::Get().reader().model_hash() + 1};
  const std::vector<CachedKey> records = {{kFirst, 2}};
  ASSERT_TRUE(WriteResidency(of_another, records).ok());
  const absl::Status refused = CheckKept();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(MessageText(refused), testing::HasSubstr("--residency"));
  EXPECT_EQ(*ReadResidency(of_another, ExpertStore::Get().reader().description()), records) << "it is left as it was";
  config_.follows_another = true;
  RunLayer(Open(5), kFirst, {4});
  ASSERT_TRUE(builder_->KeepResidency().ok());
  EXPECT_EQ(*ReadResidency(of_another, ExpertStore::Get().reader().description()), records);
  Open(5);
  EXPECT_EQ(builder_->kept_records(), 1u) << "its own lies beside it";
}

TEST_F(ProviderBuilderTest, WhatAnotherModelHasLearnedStaysWhereThisOneTookItsPlace) {
  config_.preset.preset = "auto";
  config_.learned_state = folder_ / "learned";
  RunLayer(Open(24), kFirst, {1, 2});
  ASSERT_TRUE(builder_->Finish().ok());
  std::string anothers = FileContents(config_.learned_state);
  anothers[8] = static_cast<char>(anothers[8] + 1);  // of the model's hash
  const uint64_t sum = Checksum(std::as_bytes(std::span(anothers).first(anothers.size() - sizeof(uint64_t))));
  std::memcpy(&anothers[anothers.size() - sizeof(sum)], &sum, sizeof(sum));
  std::ofstream(config_.learned_state, std::ios::binary) << anothers;
  config_.follows_another = true;
  for (int turn = 0; turn < 2; ++turn) {
    RunLayer(Open(24), kFirst, {1, 2});
    ASSERT_TRUE(builder_->Finish().ok());
    EXPECT_EQ(FileContents(config_.learned_state), anothers);
    EXPECT_EQ(Files(), 2) << "its own beside it";
  }
}

TEST_F(ProviderBuilderTest, WhatHasNoRoomIsKeptBesideWhatIsLearnedFromThenOn) {
  config_.preset.preset = "auto";
  config_.learned_state = folder_ / "learned";
  const auto serve = [&](uint64_t budget) {
    CachingProvider& provider = Open(24, budget);
    for (int token = 0; token < 20; ++token) {
      provider.OnToken(kSession, TokenId(token));
      for (const LayerId layer : kLayers) RunLayer(provider, layer, {0, 1, 2, 3});
    }
    ASSERT_TRUE(builder_->Finish().ok());
  };
  serve(1 << 20);
  const std::string whole = FileContents(config_.learned_state);
  serve(1 << 20);
  EXPECT_EQ(Files(), 1) << "there was room for all of it";
  std::ofstream(config_.learned_state, std::ios::binary) << whole;
  for (int turn = 0; turn < 2; ++turn) {
    serve(1 << 14);
    EXPECT_LT(FileContents(config_.learned_state).size(), whole.size());
    EXPECT_EQ(FileContents(config_.learned_state + ".whole"), whole);
  }
}

TEST_F(ProviderBuilderTest, WhatWasKeptAndCannotBeReadIsNotStartedOver) {
  for (std::string* kept : {&config_.residency, &config_.learned_state}) {
    *kept = folder_ / "loop";
    std::filesystem::remove(*kept);
    std::filesystem::create_symlink(*kept, *kept);
    const absl::Status refused = CheckKept();
    EXPECT_THAT(MessageText(refused), testing::HasSubstr(*kept)) << refused;
    kept->clear();
  }
}

// What it was asked for uses the engine, which goes before it.
TEST_F(ProviderBuilderTest, AServedCacheDoesWhatItWasAskedForUntilItsEnd) {
  config_.preset.preset = "auto";
  config_.preset.fill = false;
  config_.learned_state = folder_ / "learned";
  config_.residency = folder_ / "residency";
  RunLayer(Open(24), kFirst, {1, 2, 3, 4});
  auto engine = std::make_unique<ScriptedEngine>(EngineLimits(), Clock::Real(), nullptr);
  ServedCache cache(*builder_, *engine, {.budget = 1 << 20}, 1 << 20);
  engine->Stop(absl::UnavailableError("over"));
  std::atomic<int> done = 0;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.SaveResidency([&done](const auto&) { ++done; }).ok());
  cache.End();
  EXPECT_EQ(done, 10);
  engine.reset();
  cache.KeepLearned();
  EXPECT_EQ(cache.SaveResidency([&done](const auto&) { ++done; }).code(), absl::StatusCode::kUnavailable);
}

// Whoever asks does not wait for the disk, nor is asking often more than asking once.
TEST_F(ProviderBuilderTest, AServedCacheKeepsTheResidencyOnAThreadOfItsOwn) {
  config_.residency = folder_ / "residency";
  RunLayer(Open(24), kFirst, {1, 2, 3, 4});
  ScriptedEngine engine(EngineLimits(), Clock::Real(), nullptr);
  ServedCache cache(*builder_, engine, {.budget = 1 << 20}, 1 << 20);
  absl::Notification begun, goes_on;
  ASSERT_TRUE(cache
                  .SaveResidency([&](const auto&) {
                    begun.Notify();
                    goes_on.WaitForNotification();
                  })
                  .ok());
  begun.WaitForNotification();
  std::filesystem::remove(config_.residency);
  RunLayer(builder_->provider(), kFirst, {5});
  for (int i = 0; i < 100; ++i) cache.KeepResidency();
  EXPECT_TRUE(cache.SaveResidency([](const auto&) {}).ok()) << "there is room among the tasks";
  EXPECT_FALSE(std::filesystem::exists(config_.residency));
  goes_on.Notify();
  engine.Stop(absl::UnavailableError("over"));
  cache.End();
  EXPECT_TRUE(std::filesystem::exists(config_.residency));
}

TEST_F(ProviderBuilderTest, AsksForWhatThePartsAndTheCacheNeed) {
  for (const PresetRow& row : Presets()) {
    if (row.rule == "widths") continue;  // needs a file
    config_.preset = {.preset = std::string(row.name)};
    builder_ = ProviderBuilder::Choose(config_, ExpertStore::Get().reader(), spec_).value();
    const PresetNeeds needs = builder_->Needs();
    const PartMemory parts = MemoryOfParts(builder_->preset(), ExpertStore::Get().reader().description(), {kTopK, spec_.hidden});
    EXPECT_EQ(needs.fixed_bytes, parts.fixed_bytes) << row.name;
    EXPECT_EQ(needs.sequence_bytes, parts.sequence_bytes) << row.name;
    EXPECT_EQ(needs.token_tables, parts.tables) << row.name;
    EXPECT_EQ(needs.most_table_bytes, parts.most_table_bytes) << row.name;
    EXPECT_EQ(needs.most_table_bytes > 0, needs.token_tables > 0) << row.name;
    const bool bounded = row.cache == CacheKind::kAll || builder_->preset().mask->chooses_residents;
    EXPECT_EQ(needs.cache.least > 0, bounded) << row.name;
    EXPECT_EQ(needs.cache.most > 0, row.cache == CacheKind::kOneToken) << row.name;
  }
}

}  // namespace
}  // namespace moed
