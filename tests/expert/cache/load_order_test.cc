// Which read runs when: overlap, demand before guess, joins, split records. Reads are answered by hand.
#include <cerrno>
#include <filesystem>
#include <thread>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace load_order_test {

using testing::ElementsAre;
using testing::IsEmpty;

std::shared_ptr<const RandomAccessFile> MemoryStore() { return MakeMemoryFile("experts.moed", ExpertStore::Get().contents()); }

class LoadOrder : public testing::Test {
 protected:
  ManualReadBackend reads_{8, MemoryStore()};
};

TEST_F(LoadOrder, TheNextReadIsInFlightWhileAnExpertIsUsed) {
  ManualReadBackend one_at_a_time(1, MemoryStore());
  auto provider = MakeProvider(one_at_a_time, Records(2));
  Routing routing(kFirst, {3, 5, 1});
  provider->Begin(routing.Get());
  EXPECT_THAT(one_at_a_time.pending(), ElementsAre(At(kFirst, 3)));
  ASSERT_TRUE(one_at_a_time.CompleteNext());
  std::optional<ReadyExpert> used = provider->Next();
  EXPECT_EQ(used->expert, 3);
  EXPECT_THAT(one_at_a_time.pending(), ElementsAre(At(kFirst, 5)));  // while 3 is pinned
  ASSERT_TRUE(one_at_a_time.CompleteNext());
  EXPECT_THAT(one_at_a_time.pending(), IsEmpty());  // both slots are taken
  used.reset();
  EXPECT_THAT(one_at_a_time.pending(), ElementsAre(At(kFirst, 1)));
  used = provider->Next();
  EXPECT_EQ(used->expert, 5);
  used.reset();
  ASSERT_TRUE(one_at_a_time.CompleteNext());
  used = provider->Next();
  EXPECT_EQ(used->expert, 1);
  EXPECT_FALSE(provider->Next().has_value());
}

TEST_F(LoadOrder, OneSlotServesALayerOneExpertAtATime) {
  auto provider = MakeProvider(reads_, Records(1));
  Routing routing(kFirst, {3, 5});
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 3)));
  reads_.CompleteAll();
  {
    const auto used = provider->Next();
    EXPECT_EQ(used->expert, 3);
    EXPECT_THAT(reads_.pending(), IsEmpty());
  }
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 5)));
  reads_.CompleteAll();
  EXPECT_EQ(provider->Next()->expert, 5);
  EXPECT_FALSE(provider->Next());
}

TEST_F(LoadOrder, ResidentsComeFirstThenTheOrderOfArrival) {
  auto provider = MakeProvider(reads_, Records(6));
  Routing warm(kFirst, {4});
  provider->Begin(warm.Get());
  reads_.CompleteAll();
  EXPECT_EQ(provider->Next()->expert, 4);
  Routing routing(kFirst, {0, 1, 4, 2});
  provider->Begin(routing.Get());
  for (const int expert : {2, 0, 1}) ASSERT_TRUE(reads_.Complete(At(kFirst, expert)));
  std::vector<int32_t> order;
  while (auto ready = provider->Next()) order.push_back(ready->expert);
  EXPECT_THAT(order, ElementsAre(4, 2, 0, 1));
}

TEST_F(LoadOrder, WantedResidentsAreNotEvictedByTheLoadsOfTheirLayer) {
  auto provider = MakeProvider(reads_, Records(2));
  Routing warm(kFirst, {0, 1});
  provider->Begin(warm.Get());
  reads_.CompleteAll();
  while (provider->Next()) {
  }
  Routing routing(kFirst, {2, 0});  // 0 is the least recently used
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 2)));
  EXPECT_EQ(provider->Next()->expert, 0);
  reads_.CompleteAll();
  EXPECT_EQ(provider->Next()->expert, 2);
  EXPECT_EQ(Lookups(*provider)[0], 1u);
}

// Where it is asked for, and for a prompt's experts alone; of equals the first to be named is the first.
TEST_F(LoadOrder, APromptsMostWantedExpertsAreReadFirst) {
  struct Case {
    bool most_wanted_first;
    Phase phase;
    std::vector<int32_t> order;
  };
  for (const Case& test : {Case{true, Phase::kPrefill, {2, 1, 4, 0, 3}}, Case{true, Phase::kDecode, {0, 1, 2, 3, 4}},
                           Case{false, Phase::kPrefill, {0, 1, 2, 3, 4}}}) {
    ManualReadBackend reads(8, MemoryStore());
    ProviderOptions options = Records(24);
    options.most_wanted_first = test.most_wanted_first;
    auto provider = MakeProvider(reads, options);
    Routing routing(kFirst);
    for (const std::vector<int32_t>& chosen : {std::vector{0, 1, 2, 3}, {1, 2, 4}, {2, 1}, {2, 4}}) {
      routing.Add(kSession, chosen, test.phase);
    }
    provider->Begin(routing.Get());
    std::vector<uint64_t> order;
    for (const int32_t expert : test.order) order.push_back(At(kFirst, expert));
    EXPECT_EQ(reads.submitted(), order) << test.most_wanted_first;
    Drain(*provider, reads);
  }
}

ProviderOptions WholeLayers(int records) {
  ProviderOptions options = Records(records);
  options.whole_layers = true;
  return options;
}

TEST_F(LoadOrder, AWholeLayerIsReadBehindWhatWasChosen) {
  auto provider = MakeProvider(reads_, WholeLayers(24));
  EXPECT_THAT(RunLayer(*provider, reads_, kFirst, {5, 3}), ElementsAre(5, 3));
  std::vector<uint64_t> order;
  for (const int expert : {5, 3, 0, 1, 2, 4, 6, 7}) order.push_back(At(kFirst, expert));
  EXPECT_EQ(reads_.submitted(), order);
  EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, kExperts * ExpertStore::Get().record_bytes());
  EXPECT_EQ(provider->sequence_counters(kSession).misses, 2u);
  EXPECT_THAT(RunLayer(*provider, reads_, kFirst, {0}), ElementsAre(0));
  EXPECT_EQ(reads_.submitted(), order);  // all of it has stayed
}

TEST_F(LoadOrder, AWholeLayerEndsWithItsLastRead) {
  ManualReadBackend one_at_a_time(1, MemoryStore());
  auto provider = MakeProvider(one_at_a_time, WholeLayers(24));
  Routing routing(kFirst, {5});
  provider->Begin(routing.Get());
  ASSERT_TRUE(one_at_a_time.CompleteNext());
  EXPECT_EQ(provider->Next()->expert, 5);
  std::thread device([&] {
    for (int rest = 1; rest < kExperts; ++rest) {
      one_at_a_time.WaitForPending(1);
      one_at_a_time.CompleteNext();
    }
  });
  EXPECT_FALSE(provider->Next());
  EXPECT_EQ(one_at_a_time.submitted().size(), static_cast<size_t>(kExperts));
  EXPECT_THAT(one_at_a_time.pending(), IsEmpty());
  device.join();
}

// One slot, and a record that nobody chose and that cannot be read.
TEST_F(LoadOrder, WhatNobodyChoseOfAWholeLayerHoldsAndFailsNothing) {
  const std::shared_ptr<LyingFile> file = StoreFile();
  file->FailWithErrno(ExpertStore::Get().RangeOf(kFirst, 6), EIO);
  const auto reads = MakeThreadedReadBackend("memory", file, 1);
  auto provider = MakeProvider(*reads, WholeLayers(1));
  const Delivered delivered = RunLayer(*provider, kFirst, {5});
  EXPECT_THAT(delivered.experts, ElementsAre(5));
  EXPECT_THAT(delivered.failures, IsEmpty());
  EXPECT_EQ(provider->Stats().failed_loads, 1u);
  EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, (kExperts - 1) * ExpertStore::Get().record_bytes());
}

TEST_F(LoadOrder, OneReadServesAllWhoWantTheExpert) {
  auto provider = MakeProvider(reads_, Records(4));
  const SequenceId other(2);
  provider->OnSequenceStart(other);
  Routing routing(kFirst, {3, 4});
  routing.Add(other, {4, 3});
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.submitted(), ElementsAre(At(kFirst, 3), At(kFirst, 4)));
  reads_.CompleteAll();
  int handed_out = 0;
  while (provider->Next()) ++handed_out;
  EXPECT_EQ(handed_out, 2);
  const uint64_t record = ExpertStore::Get().record_bytes();
  EXPECT_EQ(provider->sequence_counters(kSession).bytes_read + provider->sequence_counters(other).bytes_read, 2 * record);
  EXPECT_EQ(provider->sequence_counters(other).misses, 2u);
}

TEST_F(LoadOrder, GateAndUpAreThereBeforeTheRecordEnds) {
  ProviderOptions options = Records(2);
  options.split_read_bytes = ExpertStore::Get().record_bytes();
  auto provider = MakeProvider(reads_, options);
  Routing routing(kFirst, {6});
  provider->Begin(routing.Get());
  const uint64_t down = At(kFirst, 6) + ExpertStore::Get().down_offset();
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 6), down));
  ASSERT_TRUE(reads_.Complete(At(kFirst, 6)));
  const std::optional<ReadyExpert> ready = provider->Next();
  for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp}) {
    const auto found = ready->handle.Part(part);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(std::ranges::equal(found->bytes, Bytes(SegmentContents(ExpertStore::Get().description(), {kFirst, 6}, part))));
  }
  EXPECT_THAT(reads_.pending(), ElementsAre(down));
  std::thread device([&] { reads_.CompleteAll(); });
  ExpectRightBytes(*ready, kFirst);  // waits for down
  device.join();
}

TEST_F(LoadOrder, ARecordBelowTheLimitIsReadAtOnce) {
  ProviderOptions options = Records(2);
  options.split_read_bytes = ExpertStore::Get().record_bytes() + 1;
  auto provider = MakeProvider(reads_, options);
  Routing routing(kFirst, {6});
  provider->Begin(routing.Get());
  EXPECT_THAT(reads_.pending(), ElementsAre(At(kFirst, 6)));
  reads_.CompleteAll();
  ExpectRightBytes(*provider->Next(), kFirst);
}

TEST_F(LoadOrder, ADownPartThatArrivesFirstHandsNothingOut) {
  ProviderOptions options = Records(3);
  options.split_read_bytes = 1;
  auto provider = MakeProvider(reads_, options);
  Routing routing(kFirst, {6, 7});
  provider->Begin(routing.Get());
  ASSERT_TRUE(reads_.Complete(At(kFirst, 6) + ExpertStore::Get().down_offset()));
  ASSERT_TRUE(reads_.Complete(At(kFirst, 7)));
  EXPECT_EQ(provider->Next()->expert, 7);
  ASSERT_TRUE(reads_.Complete(At(kFirst, 6)));
  ExpectRightBytes(*provider->Next(), kFirst);
  reads_.CompleteAll();
}

TEST_F(LoadOrder, AProviderMayEndInTheMiddleOfALayer) {
  ManualReadBackend one_at_a_time(1, MemoryStore());
  std::thread device;
  {
    auto provider = MakeProvider(one_at_a_time, Records(2));
    Routing routing(kFirst, {0, 1, 2});
    provider->Begin(routing.Get());
    device = std::thread([&] {
      one_at_a_time.WaitForPending(1);
      one_at_a_time.CompleteAll();
    });
  }
  device.join();
  EXPECT_THAT(one_at_a_time.pending(), IsEmpty());
}

TEST_F(LoadOrder, ALeakedPinEndsTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        // The store is this process' own, which nobody removes once it has died.
        std::filesystem::remove_all(std::filesystem::path(ExpertStore::Get().path()).parent_path());
        ManualReadBackend reads(8, MemoryStore());
        auto provider = MakeProvider(reads, Records(2));
        Routing routing(kFirst, {0});
        provider->Begin(routing.Get());
        reads.CompleteAll();
        const auto leaked = provider->Next();
        provider.reset();
      },
      "invariant broken");
}

}  // namespace load_order_test
}  // namespace moed
