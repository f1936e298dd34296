// Free room that is filled while the disk has nothing else to do: when, with what, and who leaves then.
#include <fstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "core/expert/cache/fill_order.h"
#include "core/expert/learning/activation_paths.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/presets/preset.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace fill_test {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kAll = 24;

PresetParts PlainParts() {
  PresetParts parts;
  parts.policy = MakePolicy("lru", {StoreContext()}).value();
  parts.predictor = MakePredictor("none", {}).value();
  parts.rule = MakeFidelityRule("exact", {.model = StoreContext()}).value();
  return parts;
}
PresetSetup Filling() {
  PresetSetup setup;
  setup.fill = true;
  return setup;
}
std::vector<CachedKey> InTurns() { return FillOrder(Filling(), PlainParts(), StoreContext()); }

uint64_t At(const CachedKey& key) { return ExpertStore::Get().reader().RecordOffset(key); }
std::vector<uint64_t> Offsets(const std::vector<CachedKey>& keys, size_t count) {
  std::vector<uint64_t> offsets;
  for (const CachedKey& key : std::span(keys).first(count)) offsets.push_back(At(key));
  return offsets;
}

uint32_t Residents(const CachingProvider& provider) {
  uint32_t count = 0;
  for (const LayerStats& layer : provider.Stats().layers) count += layer.resident[kReferencePrecision];
  return count;
}
uint64_t Evictions(const CachingProvider& provider) {
  uint64_t count = 0;
  for (const auto& by_reason : provider.Stats().evictions) {
    for (const uint64_t evictions : by_reason) count += evictions;
  }
  return count;
}
uint64_t Filled(const CachingProvider& provider) { return provider.Stats().loads[static_cast<size_t>(LoadReason::kFill)].count; }

std::unique_ptr<CachingProvider> MakeFilling(ReadBackend& reads, int records, RigParts parts = {},
                                             std::vector<CachedKey> fill = InTurns()) {
  parts.fill = std::move(fill);
  return MakeProvider(reads, Records(records), std::move(parts));
}

class Fill : public testing::Test {
 protected:
  const std::shared_ptr<LyingFile> file_ = StoreFile();
  ManualReadBackend reads_{8, file_};
  ManualReadBackend single_{1, file_};  // one read in flight, the others queue
};

TEST_F(Fill, NeedsNoRequestAndReadsOneRecordAtATime) {
  auto provider = MakeFilling(reads_, kAll);
  for (int i = 0; i < kAll; ++i) {
    ASSERT_THAT(reads_.pending(), SizeIs(1)) << i;
    ASSERT_TRUE(reads_.CompleteNext());
  }
  EXPECT_THAT(reads_.pending(), IsEmpty());
  EXPECT_THAT(reads_.submitted(), ElementsAreArray(Offsets(InTurns(), kAll)));
  EXPECT_EQ(Residents(*provider), 24u);
  const ExpertStats stats = provider->Stats();
  const uint64_t record = ExpertStore::Get().record_bytes();
  EXPECT_THAT(stats.load_bytes[kReferencePrecision], ElementsAre(0, 0, kAll * record));
  EXPECT_EQ(Filled(*provider), 24u);
  EXPECT_THAT(stats.prefetches, testing::Each(0));
  EXPECT_EQ(stats.predictions[0].guessed + stats.predictions[1].guessed, 0u);
  EXPECT_EQ(stats.cache_bytes, kAll * record);
  RunLayer(*provider, reads_, kFirst, {0, 3, 5, 7});
  EXPECT_THAT(Lookups(*provider), ElementsAre(4, 0, 0));
  EXPECT_THAT(reads_.submitted(), SizeIs(kAll));
  EXPECT_THAT(provider->Stats().prefetches, testing::Each(0));
}

TEST_F(Fill, WithoutAnOrderNothingIsRead) {
  auto provider = MakeFilling(reads_, kAll, {}, {});
  EXPECT_THAT(reads_.submitted(), IsEmpty());
  RunLayer(*provider, reads_, kFirst, {0, 1});
  EXPECT_THAT(reads_.submitted(), ElementsAre(At(kFirst, 0), At(kFirst, 1)));
}

TEST_F(Fill, StopsWhenTheCacheIsFullAndEvictsNothing) {
  auto provider = MakeFilling(reads_, 5);
  RunLayer(*provider, reads_, kFirst, {6, 7});
  EXPECT_EQ(Residents(*provider), 5u);
  EXPECT_THAT(reads_.submitted(), SizeIs(5));
  EXPECT_EQ(Evictions(*provider), 0u);
  RunLayer(*provider, reads_, kFirst, {6, 7});
  EXPECT_THAT(reads_.submitted(), SizeIs(5));
}

TEST_F(Fill, GoesOnWhereMemoryThatWasLentComesBack) {
  auto provider = MakeFilling(reads_, 5);
  ASSERT_TRUE(provider->Lend(2 * ExpertStore::Get().record_bytes()).ok());
  while (reads_.CompleteNext()) {
  }
  EXPECT_EQ(Residents(*provider), 3u) << "beside what is lent";
  ASSERT_TRUE(provider->Lend(0).ok());
  while (reads_.CompleteNext()) {
  }
  EXPECT_EQ(Residents(*provider), 5u);
  ASSERT_TRUE(provider->Lend(2 * ExpertStore::Get().record_bytes()).ok());
  EXPECT_EQ(Residents(*provider), 3u);
  ASSERT_TRUE(provider->Lend(0).ok());
  while (reads_.CompleteNext()) {
  }
  EXPECT_EQ(Residents(*provider), 3u) << "it was full once";
}

TEST_F(Fill, ADemandWaitsBehindOneRecordAtMost) {
  auto provider = MakeFilling(single_, kAll);
  EXPECT_THAT(single_.pending(), ElementsAre(At(kFirst, 0)));
  Routing routing(kFirst, {5, 6});
  provider->Begin(routing.Get());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(single_.CompleteNext());
  const std::vector<CachedKey> order = InTurns();
  EXPECT_THAT(single_.submitted(), ElementsAre(At(order[0]), At(kFirst, 5), At(kFirst, 6), At(order[1]), At(order[2])));
  Drain(*provider, single_);
}

TEST_F(Fill, GuessesGoFirst) {
  RigParts parts;
  parts.predictor = std::make_unique<ScriptedPredictor>(
      std::map<LayerId, std::vector<Guess>>{{kFirst, {{{kSecond, 5}, .5f}, {{kSecond, 6}, .5f}}}});
  auto provider = MakeFilling(single_, kAll, std::move(parts));
  Routing routing(kFirst, {5});
  provider->Begin(routing.Get());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(single_.CompleteNext());
  const std::vector<CachedKey> order = InTurns();
  EXPECT_THAT(single_.submitted(), ElementsAre(At(order[0]), At(kFirst, 5), At(kSecond, 5), At(kSecond, 6), At(order[1])));
  Drain(*provider, single_);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kUsed), 0u);
}

TEST_F(Fill, ADemandJoinsTheReadOfItsRecord) {
  auto provider = MakeFilling(reads_, kAll);
  Routing routing(kFirst, {0});
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.submitted(), SizeIs(1));
  EXPECT_THAT(Lookups(*provider), ElementsAre(0, 0, 1));
  ASSERT_TRUE(reads_.CompleteNext());
  ExpectRightBytes(*provider->Next(), kFirst);
  EXPECT_THAT(reads_.pending(), SizeIs(1));  // and goes on
  Drain(*provider, reads_);
  EXPECT_EQ(Residents(*provider), 24u);
}

TEST_F(Fill, WhatIsThereAlreadyIsNotReadAgain) {
  auto provider = MakeFilling(single_, kAll);
  RunLayer(*provider, single_, kSecond, {0, 1, 2});
  EXPECT_THAT(single_.submitted(), SizeIs(kAll));
  EXPECT_EQ(Residents(*provider), 24u);
}

// Room that a failed record gives back when it is unpinned is left to demands.
TEST_F(Fill, IsOverOnceTheCacheWasFull) {
  RigParts parts;
  parts.fill = InTurns();
  ProviderOptions options = Records(2);
  options.split_read_bytes = 1;
  auto provider = MakeProvider(reads_, options, std::move(parts));
  reads_.CompleteAll();
  Routing routing(kFirst, {5});
  provider->Begin(routing.Get());
  ASSERT_TRUE(reads_.CompleteNext());
  auto ready = provider->Next();
  ASSERT_TRUE(reads_.CompleteNext(absl::DataLossError("gone")));
  ready.reset();
  EXPECT_THAT(reads_.pending(), IsEmpty());
  EXPECT_FALSE(provider->Next());
  EXPECT_THAT(reads_.pending(), IsEmpty());
  EXPECT_EQ(Residents(*provider), 1u);
}

// Two of six are used; the four others make room before any policy is asked, the last of the order first.
TEST_F(Fill, WhatNobodyUsedLeavesFirstUnderEveryPolicy) {
  for (const PolicyRow& policy : Policies()) {
    SCOPED_TRACE(std::string(policy.name));
    ManualReadBackend reads(8, file_);
    RigParts parts;
    parts.policy = MakePolicy(policy.name, StoreParts(6)).value();
    auto provider = MakeFilling(reads, 6, std::move(parts));
    reads.CompleteAll();
    RunLayer(*provider, reads, kFirst, {0, 1});
    EXPECT_THAT(Lookups(*provider), ElementsAre(2, 0, 0));
    const ExpertKey used[] = {{kFirst, 0}, {kFirst, 1}};
    std::vector<ExpertKey> expected(std::begin(used), std::end(used));
    for (const int32_t expert : {4, 5, 6, 7}) {
      RunLayer(*provider, reads, kSecond, {expert});
      expected.push_back({kSecond, expert});
      EXPECT_EQ(ResidentExperts(*provider), expected);
    }
    EXPECT_EQ(Evictions(*provider), 4u);
    EXPECT_EQ(provider->Stats().bypass_loads, 0u);
    EXPECT_EQ(provider->Stats().wasted_prefetch_bytes, 0u);
    for (const LayerId layer : kLayers) RunLayer(*provider, reads, layer, {0, 2, 4, 6});  // from here on it is the policy's
    EXPECT_EQ(Filled(*provider), 6u);
  }
}

TEST_F(Fill, TheLastOfTheOrderLeavesFirst) {
  auto provider = MakeFilling(reads_, 3);
  reads_.CompleteAll();
  RunLayer(*provider, reads_, kThird, {7});
  EXPECT_EQ(Residents(*provider), 3u);
  RunLayer(*provider, reads_, kFirst, {0});   // first of the order
  RunLayer(*provider, reads_, kSecond, {0});  // second
  EXPECT_THAT(Lookups(*provider), ElementsAre(2, 1, 0));
}

// What a policy is told: an insertion at the first use, an eviction only of what was inserted.
class KeepingPolicy final : public EvictionPolicy {
 public:
  explicit KeepingPolicy(std::vector<CachedKey>& inserted) : inserted_(inserted) {}
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey key, uint64_t) override {
    EXPECT_EQ(std::ranges::count(inserted_, key), 0);
    inserted_.push_back(key);
  }
  void OnEvict(CachedKey key) override { EXPECT_EQ(std::erase(inserted_, key), 1u); }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)>) override { return std::nullopt; }

 private:
  std::vector<CachedKey>& inserted_;
};

TEST_F(Fill, IsFreeRoomToThePolicyUntilItIsUsed) {
  std::vector<CachedKey> inserted;
  RigParts parts;
  parts.policy = std::make_unique<KeepingPolicy>(inserted);
  auto provider = MakeFilling(reads_, 4, std::move(parts));
  reads_.CompleteAll();
  EXPECT_THAT(inserted, IsEmpty());
  RunLayer(*provider, reads_, kFirst, {0});
  EXPECT_THAT(inserted, ElementsAre(CachedKey{kFirst, 0}));
  RunLayer(*provider, reads_, kSecond, {4, 5, 6});
  EXPECT_THAT(inserted, SizeIs(4));
  EXPECT_EQ(provider->Stats().bypass_loads, 0u);  // there was room, so nothing was refused
  RunLayer(*provider, reads_, kThird, {1});
  EXPECT_EQ(provider->Stats().bypass_loads, 1u);
  EXPECT_EQ(Filled(*provider), 4u);
}

TEST_F(Fill, WhatWasInMemoryBeforeIsThePolicysOnceItIsRead) {
  for (const int known : {2, 4, 6}) {
    SCOPED_TRACE(known);
    ManualReadBackend reads(8, file_);
    std::vector<CachedKey> inserted;
    RigParts parts;
    parts.policy = std::make_unique<KeepingPolicy>(inserted);
    parts.known = static_cast<size_t>(known);
    auto provider = MakeFilling(reads, 4, std::move(parts));
    for (int i = 0; i < std::min(known, 4); ++i) {
      EXPECT_THAT(inserted, IsEmpty()) << i;
      ASSERT_TRUE(reads.CompleteNext());
    }
    std::vector<CachedKey> expected = InTurns();  // those used most often first
    expected.resize(static_cast<size_t>(std::min(known, 4)));
    std::ranges::reverse(expected);
    EXPECT_EQ(inserted, expected);
    reads.CompleteAll();
    EXPECT_EQ(inserted, expected) << "what was filled in behind them is free room";
    EXPECT_EQ(Filled(*provider), 4u);
  }
}

TEST_F(Fill, WhatWasInMemoryBeforeAndIsUsedMeanwhileIsInsertedOnce) {
  std::vector<CachedKey> inserted;
  RigParts parts;
  parts.policy = std::make_unique<KeepingPolicy>(inserted);
  parts.known = 3;
  auto provider = MakeFilling(reads_, 4, std::move(parts));
  ASSERT_TRUE(reads_.CompleteNext());
  RunLayer(*provider, reads_, kFirst, {0});  // first of the order; the second is on its way
  reads_.CompleteAll();
  EXPECT_THAT(inserted, ElementsAre(InTurns()[0], InTurns()[2], InTurns()[1]));
}

TEST_F(Fill, OfWhatWasInMemoryBeforeTheLeastUsedLeavesFirst) {
  RigParts parts;
  parts.policy = MakePolicy("lru", StoreParts(3)).value();
  parts.known = 3;
  auto provider = MakeFilling(reads_, 3, std::move(parts));
  reads_.CompleteAll();
  RunLayer(*provider, reads_, kFirst, {0});  // the most used one: the newest in any case
  RunLayer(*provider, reads_, kThird, {7});
  RunLayer(*provider, reads_, kSecond, {0});  // second of the order; the third, of kThird, has left
  EXPECT_THAT(Lookups(*provider), ElementsAre(2, 1, 0));
}

TEST_F(Fill, ARecordThatCannotBeReadIsTriedOnceAndReportedByItsDemand) {
  const std::vector<CachedKey> order = InTurns();
  file_->FlipBit(At(order[1]), 3);
  file_->FailWithErrno(ExpertStore::Get().RangeOf(order[2].layer, order[2].expert), EIO);
  auto provider = MakeFilling(reads_, kAll);
  reads_.CompleteAll();
  EXPECT_THAT(reads_.submitted(), SizeIs(kAll));
  EXPECT_EQ(Residents(*provider), 22u);
  EXPECT_EQ(provider->Stats().failed_loads, 2u);
  RunLayer(*provider, reads_, order[1].layer, {order[1].expert}, /*failing=*/{order[1].expert});
  file_->Heal();
  RunLayer(*provider, reads_, order[1].layer, {order[1].expert});
}

TEST_F(Fill, WithoutMemoryTheDemandSaysSo) {
  class NoMemory final : public Allocator {
   public:
    absl::StatusOr<Buffer> Allocate(size_t) override { return ResourceExhausted("none left"); }
  } allocator;
  RigParts parts;
  parts.allocator = &allocator;
  auto provider = MakeFilling(reads_, 4, std::move(parts));
  EXPECT_THAT(reads_.submitted(), IsEmpty());
  RunLayer(*provider, reads_, kFirst, {0}, /*failing=*/{0});
}

TEST_F(Fill, EndsInTheMiddleOfARead) {
  for (const uint64_t split : {uint64_t{1}, UINT64_MAX}) {
    const auto file = StoreFile();
    file->Hold({});
    auto backend = MakeThreadedReadBackend("held", file, 1);
    RigParts parts;
    parts.fill = InTurns();
    ProviderOptions options = Records(kAll);
    options.split_read_bytes = split;
    auto provider = MakeProvider(*backend, options, std::move(parts));
    file->WaitUntilHeld(1);
    std::thread end([&provider] { provider.reset(); });
    file->Release();
    end.join();
    EXPECT_LE(file->reads(), 2 * kAll);
  }
}

TEST(FillOrder, IsNothingWhereThePresetDoesNotFill) { EXPECT_THAT(FillOrder({}, PlainParts(), StoreContext()), IsEmpty()); }

TEST(FillOrder, TakesTurnsOverTheLayersWhereNothingIsKnown) {
  std::vector<CachedKey> expected;
  for (int32_t expert = 0; expert < kExperts; ++expert) {
    for (const LayerId layer : kLayers) expected.push_back({layer, expert});
  }
  for (const PolicyRow& policy : Policies()) {
    PresetParts parts = PlainParts();
    parts.policy = MakePolicy(policy.name, StoreParts(6)).value();
    EXPECT_EQ(FillOrder(Filling(), parts, StoreContext(6)), expected) << policy.name;
  }
}

// A token that uses one expert of a layer, as a policy hears of it.
void Teach(EvictionPolicy& policy, LayerId layer, int32_t expert) {
  const ExpertChoice choice[] = {{expert, 1.f}};
  const TokenRouting token[] = {{kSession, TokenId(1), Phase::kDecode, choice}};
  policy.OnToken(kSession, TokenId(1));
  policy.Learn({layer, token});
  policy.OnRouted({layer, token});
}

TEST(FillOrder, BeginsWithWhatThePolicyLearnedBeforeARestart) {
  const MemoryFolder folder;
  const LearnedFile file{folder / "state", 1, "parts"};
  ExpertModelShape context = StoreContext();
  context.table_bytes = 1 << 16;
  PresetParts parts = PlainParts();
  {
    const auto before = MakePolicy("learned", {context}).value();
    before->OnSequenceStart(kSession);
    for (int round = 0; round < 30; ++round) {
      Teach(*before, kFirst, round % 4 == 0 ? 5 : 6);
      Teach(*before, kSecond, round % kExperts);
      Teach(*before, kThird, 2);
    }
    before->OnSequenceEnd(kSession);
    ASSERT_TRUE(SaveLearned(file, [&](LearnedState& state) { before->VisitLearned(state); }).ok());
  }
  parts.policy = MakePolicy("learned", {context}).value();
  ASSERT_TRUE(TakeLearned(file, [&](LearnedState& state) { parts.policy->VisitLearned(state); }).ok());
  const std::vector<CachedKey> order = FillOrder(Filling(), parts, context);
  EXPECT_THAT(order, SizeIs(kAll));
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 3),
              ElementsAre(CachedKey{kThird, 2}, CachedKey{kFirst, 6}, CachedKey{kFirst, 5}));
  EXPECT_THAT(order, testing::UnorderedElementsAreArray(InTurns()));
}

// EdgeMoE: by use count, each at its own width.
TEST(FillOrder, FollowsADictionaryOfPaths) {
  const MemoryFolder folder;
  const StoreReader& store = ExpertStore::Get().reader();
  const std::string paths_file = folder / "paths";
  ActivationPaths paths(3, kExperts, ActivationPaths::kReach, 1 << 16);
  for (int i = 0; i < 10; ++i) {
    const int32_t first[] = {i < 7 ? 4 : 1};
    const int32_t second[] = {3};
    paths.Add(0, {}, first);
    paths.Add(1, {{}, {first[0]}}, second);
  }
  ASSERT_TRUE(paths.Write(paths_file, store.model_hash()).ok());
  std::ofstream(folder / "widths.json") << absl::StrFormat(
      R"({"model_hash":"%016x","precisions":[[0,1,0,1,0,1,0,1],[0,1,0,1,0,1,0,1],[0,1,0,1,0,1,0,1]]})", store.model_hash());
  const PartOptions options = PartOptions::Parse(StrCat("widths=", folder / "widths.json", ",paths=", paths_file)).value();
  const PresetSetup setup = ChoosePreset({.preset = "edgemoe", .options = options}, store).value();
  const PresetParts parts = MakePresetParts(setup, {.model = StoreContext()}).value();
  const std::vector<CachedKey> order = FillOrder(setup, parts, StoreContext());
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 4),
              ElementsAre(CachedKey{kSecond, 3, 1}, CachedKey{kFirst, 4, 0}, CachedKey{kFirst, 1, 1}, CachedKey{kFirst, 0, 0}));
  EXPECT_THAT(order, SizeIs(kAll));
}

TEST(FillPresets, FollowTheirColumnUnlessTheyAreTold) {
  std::vector<std::string_view> filling;
  for (const PresetRow& row : Presets()) {
    PresetChoice choice{.preset = std::string(row.name)};
    if (row.rule == "widths") choice.options = PartOptions::Parse("widths=of.json").value();
    EXPECT_EQ(ChoosePreset(choice)->fill, row.fill) << row.name;
    if (row.fill) filling.push_back(row.name);
    choice.fill = false;
    EXPECT_FALSE(ChoosePreset(choice)->fill) << row.name;
    choice.fill = true;
    const auto filled = ChoosePreset(choice);
    EXPECT_EQ(filled.ok(), row.mask == "none") << row.name;
    if (filled.ok()) {
      EXPECT_TRUE(filled->fill);
    } else {
      EXPECT_THAT(MessageText(filled.status()), HasSubstr(row.name));
    }
  }
  EXPECT_THAT(filling, ElementsAre("auto", "edgemoe"));
}

}  // namespace fill_test
}  // namespace moed
