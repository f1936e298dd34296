// The cache gets another size while it serves: who leaves, who moves, what is refused.
#include <thread>

#include "core/expert/cache/fill_order.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace resize_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class Resize : public testing::Test {
 protected:
  ProviderOptions Options(int records) const {
    ProviderOptions options = Records(records);
    options.most_bytes = 8 * record_;
    options.least_bytes = 2 * record_;
    return options;
  }
  uint64_t Leavers() const { return provider_->Stats().evictions[0][static_cast<int>(EvictionReason::kResize)]; }
  uint64_t Reads() const { return provider_->sequence_counters(kSession).bytes_read / record_; }

  const uint64_t record_ = ExpertStore::Get().record_bytes();
  std::unique_ptr<ReadBackend> reads_ = MakeThreadedReadBackend("memory", StoreFile(), 1);
  std::unique_ptr<CachingProvider> provider_ = MakeProvider(*reads_, Options(6));
};

TEST_F(Resize, WhatWasUsedLeastLeavesAndTheRestMoves) {
  RunLayer(*provider_, kFirst, {0, 1, 2});
  RunLayer(*provider_, kSecond, {5, 6, 7});
  RunLayer(*provider_, kSecond, {6, 7});  // at the end, and used most
  RunLayer(*provider_, kFirst, {1});
  ASSERT_TRUE(provider_->Resize(3 * record_).ok());
  EXPECT_THAT(ResidentExperts(*provider_), ElementsAre(ExpertKey{kFirst, 1}, ExpertKey{kSecond, 6}, ExpertKey{kSecond, 7}));
  EXPECT_EQ(Leavers(), 3u);
  EXPECT_EQ(provider_->Stats().cache_capacity_bytes, 3 * record_);
  EXPECT_EQ(provider_->Stats().cache_bytes, 3 * record_);
  const uint64_t reads = Reads();
  RunLayer(*provider_, kSecond, {6, 7});
  RunLayer(*provider_, kFirst, {1});
  EXPECT_EQ(Reads(), reads) << "what moved is still right";
  RunLayer(*provider_, kThird, {0, 1, 2, 3});
  EXPECT_THAT(ResidentExperts(*provider_), SizeIs(3));
}

TEST_F(Resize, NotWhereAStepWasBrokenOff) {
  Routing routing(kFirst, {0, 1});
  provider_->Begin(routing.Get());
  const absl::Status refused = provider_->Resize(3 * record_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageText(refused), HasSubstr("broken off"));
  std::optional<ReadyExpert> ready = provider_->Next();
  while (provider_->Next()) {
  }
  EXPECT_FALSE(provider_->Resize(3 * record_).ok()) << "a handle is held";
  ready.reset();
  EXPECT_TRUE(provider_->Resize(3 * record_).ok());
}

TEST_F(Resize, GrowsToWhatWasReserved) {
  ASSERT_TRUE(provider_->Resize(2 * record_).ok());
  RunLayer(*provider_, kFirst, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(ResidentExperts(*provider_), SizeIs(2));
  ASSERT_TRUE(provider_->Resize(8 * record_).ok());
  RunLayer(*provider_, kFirst, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(ResidentExperts(*provider_), SizeIs(8));
}

TEST_F(Resize, RoomThatComesIsFilledAgain) {
  RigParts parts;
  for (int32_t expert = 0; expert < kExperts; ++expert) parts.fill.push_back({kFirst, expert, kReferencePrecision});
  ManualReadBackend reads(4, StoreFile());
  const auto provider = MakeProvider(reads, Options(2), std::move(parts));
  reads.CompleteAll();
  EXPECT_THAT(provider->ResidentRecords(), SizeIs(2));
  ASSERT_TRUE(provider->Resize(5 * record_).ok());
  reads.CompleteAll();
  EXPECT_THAT(provider->ResidentRecords(), SizeIs(5));
}

TEST_F(Resize, EndsALoan) {
  ASSERT_EQ(provider_->Lend(4 * record_)->size(), 4 * record_);
  ASSERT_TRUE(provider_->Resize(4 * record_).ok());
  RunLayer(*provider_, kFirst, {0, 1, 2, 3});
  EXPECT_THAT(ResidentExperts(*provider_), SizeIs(4));
}

TEST_F(Resize, IsRefusedWithWhatIsAllowed) {
  for (const uint64_t bytes : {record_, 8 * record_ + 1}) {
    const absl::Status refused = provider_->Resize(bytes);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused));
    EXPECT_THAT(MessageText(refused), AllOf(HasSubstr(StrCat(2 * record_)), HasSubstr(StrCat(8 * record_))));
  }
  EXPECT_EQ(provider_->Stats().cache_capacity_bytes, 6 * record_);
}

TEST_F(Resize, CountsAPinThatComesWhileItWaitsForReads) {
  const std::vector<CachedKey> pinned = {{kFirst, 0, kReferencePrecision}};
  ManualReadBackend reads(1, StoreFile());
  const auto provider = MakeProvider(reads, Options(8));
  ASSERT_EQ(provider->Prefetch(pinned), 1u);
  const uint64_t before = provider->Stats().lock_crossings;
  absl::Status resized;
  std::thread resizing([&] { resized = provider->Resize(4 * record_); });
  uint64_t looks = 1;  // each takes the lock once
  while (provider->Stats().lock_crossings == before + looks) {
    ++looks;
    std::this_thread::yield();
  }
  EXPECT_EQ(provider->Pin(pinned), absl::OkStatus());
  reads.CompleteAll();
  resizing.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(resized)) << resized;
  EXPECT_THAT(MessageText(resized), HasSubstr("unpin some first"));
  EXPECT_EQ(provider->Stats().cache_capacity_bytes, 8 * record_);
  EXPECT_THAT(provider->ResidentRecords(), SizeIs(1));
}

// A policy whose plan is for one size.
class FixedPolicy final : public EvictionPolicy {
 public:
  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey, uint64_t) override {}
  void OnEvict(CachedKey) override {}
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)>) override { return std::nullopt; }
  absl::Status SetCapacity(uint64_t) override { return absl::FailedPreconditionError("my plan is fixed"); }
};

TEST_F(Resize, APolicyMayRefuse) {
  RigParts parts;
  parts.policy = std::make_unique<FixedPolicy>();
  const auto provider = MakeProvider(*reads_, Options(6), std::move(parts));
  EXPECT_EQ(MessageText(provider->Resize(4 * record_)), "my plan is fixed");
  EXPECT_EQ(provider->Stats().cache_capacity_bytes, 6 * record_);
}

// Memory that a device reads where it is.
class PinnedMemory final : public Allocator {
  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    return Buffer::Adopt(new std::byte[bytes], bytes, MemoryKind::kPinned, [](std::byte* data, size_t) { delete[] data; });
  }
};

TEST_F(Resize, MemoryOfADeviceKeepsItsSize) {
  PinnedMemory memory;
  RigParts parts;
  parts.allocator = &memory;
  const auto provider = MakeProvider(*reads_, Options(6), std::move(parts));
  const absl::Status refused = provider->Resize(4 * record_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(MessageText(refused), HasSubstr("a device reads its memory where it is"));
}

}  // namespace resize_test
}  // namespace moed
