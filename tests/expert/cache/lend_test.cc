// Memory of the cache that a step borrows for its activations.
#include <thread>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace lend_test {

using testing::ElementsAre;
using testing::IsEmpty;

uint64_t Resized(const CachingProvider& provider) {
  return provider.Stats().evictions[0][static_cast<int>(EvictionReason::kResize)];
}

class Lend : public testing::Test {
 protected:
  const uint64_t record_ = ExpertStore::Get().record_bytes();
  std::unique_ptr<ReadBackend> reads_ = MakeThreadedReadBackend("memory", StoreFile(), 1);
  std::unique_ptr<CachingProvider> provider_ = MakeProvider(*reads_, Records(4));
};

TEST_F(Lend, WhatLiesThereLeavesAndTheCacheIsSmallerUntilTheEnd) {
  RunLayer(*provider_, kFirst, {0, 1, 2, 3});
  ASSERT_EQ(provider_->Lend(2 * record_)->size(), 2 * record_);
  EXPECT_EQ(Resized(*provider_), 2u);
  EXPECT_THAT(ResidentExperts(*provider_), ElementsAre(ExpertKey{kFirst, 0}, ExpertKey{kFirst, 1}));
  RunLayer(*provider_, kSecond, {0, 1, 2, 3});
  EXPECT_EQ(ResidentExperts(*provider_).size(), 2u);
  EXPECT_THAT(provider_->Lend(0).value(), IsEmpty());
  RunLayer(*provider_, kSecond, {0, 1, 2, 3});
  EXPECT_EQ(ResidentExperts(*provider_).size(), 4u);
  EXPECT_EQ(Resized(*provider_), 2u);
  EXPECT_EQ(provider_->Stats().cache_capacity_bytes, 4 * record_);
}

TEST_F(Lend, TheSameAgainIsTheSameMemory) {
  const std::span<std::byte> lent = provider_->Lend(record_).value();
  lent.front() = std::byte{42};
  const std::span<std::byte> again = provider_->Lend(record_).value();
  EXPECT_EQ(again.data(), lent.data());
  EXPECT_EQ(again.front(), std::byte{42});
  EXPECT_GT(provider_->Lend(2 * record_)->size(), again.size());
}

TEST_F(Lend, IsWholePages) { EXPECT_EQ(provider_->Lend(1)->size(), kPageBytes); }

TEST_F(Lend, WaitsForWhatIsOnItsWayThere) {
  ManualReadBackend reads(4, StoreFile());
  RigParts parts;
  parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, {{{kSecond, 5}, .9f}}}});
  auto provider = MakeProvider(reads, Records(3), std::move(parts));
  Routing routing(kFirst, {0});
  provider->Begin(routing.Get());
  reads.CompleteNext();
  while (provider->Next()) {
  }
  ASSERT_EQ(reads.pending().size(), 1u);
  std::thread answering([&] { reads.CompleteAll(); });
  EXPECT_EQ(provider->Lend(2 * record_)->size(), 2 * record_);
  EXPECT_THAT(reads.pending(), IsEmpty());
  answering.join();
  EXPECT_EQ(Resized(*provider), 1u);
  EXPECT_THAT(ResidentExperts(*provider), ElementsAre(ExpertKey{kFirst, 0}));
}

// The kernel's refusal is the step's error, not the process's end.
TEST_F(Lend, TellsWhenThereIsNoMemory) {
  class NoMemory final : public Allocator {
    absl::StatusOr<Buffer> Allocate(size_t) override { return absl::ResourceExhaustedError("no memory"); }
  } allocator;
  RigParts parts;
  parts.allocator = &allocator;
  const auto provider = MakeProvider(*reads_, Records(4), std::move(parts));
  EXPECT_THAT(provider->Lend(0).value(), IsEmpty());
  EXPECT_TRUE(absl::IsResourceExhausted(provider->Lend(record_).status()));
  EXPECT_THAT(provider->Lend(0).value(), IsEmpty());
}

}  // namespace lend_test
}  // namespace moed
