// What the operator wants in memory: records that never leave, records that are read before anybody wants them.
#include "core/expert/cache/retry_time.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace pin_test {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

CachedKey Key(LayerId layer, int32_t expert) { return {layer, expert, kReferencePrecision}; }

std::vector<ExpertKey> Residents(const CachingProvider& provider) {
  std::vector<ExpertKey> residents;
  for (const ExpertHeat& record : provider.ResidentRecords()) residents.push_back(record.key.expert_key());
  std::ranges::sort(residents);
  return residents;
}

// Records of the store differ in size: a pinned one takes as much as the largest beside its own.
class Pins : public testing::Test {
 protected:
  static constexpr int kRecords = 9;  // room for three: two each, and three for the others

  void TearDown() override { reads_.CompleteAll(); }
  void ServeEverything() {
    for (const LayerId layer : kLayers) RunLayer(*provider_, reads_, layer, {0, 1, 2, 3, 4, 5, 6, 7});
  }

  const uint64_t record_ = ExpertStore::Get().record_bytes();
  const std::vector<CachedKey> three_ = {Key(kFirst, 3), Key(kSecond, 4), Key(kThird, 5)};
  const std::vector<ExpertKey> experts_ = {{kFirst, 3}, {kSecond, 4}, {kThird, 5}};
  ManualReadBackend reads_{4, StoreFile()};
  std::unique_ptr<CachingProvider> provider_ = MakeProvider(reads_, Records(kRecords));
};

TEST_F(Pins, AreReadAndStay) {
  ASSERT_TRUE(provider_->Pin(three_).ok());
  EXPECT_THAT(provider_->Pinned(), testing::ElementsAreArray(three_));
  EXPECT_EQ(provider_->Stats().asked.waiting, 2u) << "one read at a time";
  reads_.CompleteAll();
  EXPECT_EQ(Residents(*provider_), experts_);
  for (int round = 0; round < 3; ++round) {
    ServeEverything();
    EXPECT_THAT(Residents(*provider_), IsSupersetOf(experts_));
  }
  provider_->Unpin(std::span(three_).first(1));
  EXPECT_EQ(provider_->Stats().anchors.records, 2u);
  ServeEverything();
  EXPECT_THAT(Residents(*provider_), AllOf(Contains(experts_[1]), Contains(experts_[2]), Not(Contains(experts_[0]))));
  provider_->UnpinAll();
  ServeEverything();
  EXPECT_THAT(Residents(*provider_), Not(Contains(experts_[1])));
  EXPECT_THAT(provider_->Pinned(), IsEmpty());
}

TEST_F(Pins, TakeThePlaceOfWhatWasUsedLeast) {
  for (const LayerId layer : {kFirst, kSecond}) RunLayer(*provider_, reads_, layer, {0, 1, 2, 6});
  ASSERT_TRUE(provider_->Pin(three_).ok());
  reads_.CompleteAll();
  EXPECT_THAT(Residents(*provider_), IsSupersetOf(experts_));
}

TEST_F(Pins, LeaveRoomForEveryLayer) {
  std::vector<CachedKey> four = three_;
  four.push_back(Key(kThird, 6));
  const absl::Status refused = provider_->Pin(four);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(MessageText(refused), HasSubstr("3 experts may be pinned"));
  EXPECT_THAT(provider_->Pinned(), IsEmpty());
  ASSERT_TRUE(provider_->Pin(three_).ok());
  ASSERT_TRUE(provider_->Pin(three_).ok()) << "again is the same";
  EXPECT_TRUE(absl::IsFailedPrecondition(provider_->Pin(std::span(four).last(1))));
  const AnchorCounts counts = provider_->Stats().anchors;
  EXPECT_EQ(counts.records, 3u);
  EXPECT_LE(counts.bytes, counts.most_bytes);
}

TEST_F(Pins, BoundTheCachesSize) {
  ASSERT_TRUE(provider_->Pin(three_).ok());
  reads_.CompleteAll();
  const absl::Status refused = provider_->Resize((kRecords - 1) * record_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(MessageText(refused), HasSubstr("unpin some first"));
  provider_->Unpin(std::span(three_).first(2));
  ASSERT_TRUE(provider_->Resize(5 * record_).ok());
  EXPECT_THAT(Residents(*provider_), Contains(experts_[2]));
  ServeEverything();
  EXPECT_THAT(Residents(*provider_), Contains(experts_[2]));
}

TEST_F(Pins, MoveOutOfALoan) {
  ProviderOptions options = Records(kRecords);
  options.least_bytes = 4 * record_;
  provider_ = MakeProvider(reads_, options);
  RunLayer(*provider_, reads_, kFirst, {0, 1, 2, 4, 5, 6});
  RunLayer(*provider_, reads_, kSecond, {1, 2, 4});  // the last one lies at the end
  ASSERT_TRUE(provider_->Pin(std::vector{Key(kSecond, 4)}).ok());
  const uint64_t reads = provider_->sequence_counters(kSession).bytes_read;
  ASSERT_EQ(provider_->Lend(3 * record_)->size(), 3 * record_);
  EXPECT_THAT(Residents(*provider_), Contains(ExpertKey{kSecond, 4}));
  RunLayer(*provider_, reads_, kSecond, {4});
  EXPECT_EQ(provider_->sequence_counters(kSession).bytes_read, reads);
}

TEST_F(Pins, AFilledRecordIsNoFreeRoomOnceItIsPinned) {
  RigParts parts;
  parts.fill = {Key(kFirst, 0), Key(kFirst, 1)};
  provider_ = MakeProvider(reads_, Records(kRecords), std::move(parts));
  ASSERT_TRUE(provider_->Pin(std::vector{Key(kFirst, 0)}).ok());  // on its way
  reads_.CompleteAll();
  for (const LayerId layer : {kSecond, kThird}) RunLayer(*provider_, reads_, layer, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(Residents(*provider_), AllOf(Contains(ExpertKey{kFirst, 0}), Not(Contains(ExpertKey{kFirst, 1}))));
}

TEST_F(Pins, AskedRecordsAreReadInOrderWhileNothingElseIs) {
  const std::vector<CachedKey> asked = {Key(kSecond, 7), Key(kFirst, 1), Key(kThird, 0)};
  Routing routing(kFirst, {0});
  provider_->Begin(routing.Get());
  EXPECT_EQ(provider_->Prefetch(asked), 3u);
  EXPECT_EQ(reads_.pending().size(), 1u) << "the demand";
  Drain(*provider_, reads_);
  EXPECT_EQ(provider_->Stats().asked.done, 3u);
  EXPECT_EQ(provider_->Stats().asked.waiting, 0u);
  EXPECT_THAT(Residents(*provider_),
              ElementsAre(ExpertKey{kFirst, 0}, ExpertKey{kFirst, 1}, ExpertKey{kSecond, 7}, ExpertKey{kThird, 0}));
  const uint64_t reads = provider_->sequence_counters(kSession).bytes_read;
  RunLayer(*provider_, reads_, kSecond, {7});
  EXPECT_EQ(provider_->sequence_counters(kSession).bytes_read, reads);
}

TEST_F(Pins, AskedRecordsTakeThePlaceOfOthersButNotOfPinnedOnes) {
  ASSERT_TRUE(provider_->Pin(std::vector{Key(kFirst, 0)}).ok());
  reads_.CompleteAll();
  RunLayer(*provider_, reads_, kFirst, {1, 2, 3, 4, 5, 6, 7});
  std::vector<CachedKey> asked;
  for (int32_t expert = 0; expert < kExperts; ++expert) asked.push_back(Key(kSecond, expert));
  EXPECT_EQ(provider_->Prefetch(asked), 4u) << "as many as there is room for";
  reads_.CompleteAll();
  EXPECT_THAT(Residents(*provider_), IsSupersetOf({ExpertKey{kFirst, 0}, ExpertKey{kSecond, 0}, ExpertKey{kSecond, 1},
                                                   ExpertKey{kSecond, 2}, ExpertKey{kSecond, 3}}));
}

TEST_F(Pins, AReadThatFailsIsNotTriedForEver) {
  provider_->Prefetch(std::vector{Key(kFirst, 1), Key(kFirst, 2)});
  reads_.CompleteNext(absl::DataLossError("torn"));
  reads_.CompleteAll();
  EXPECT_THAT(Residents(*provider_), ElementsAre(ExpertKey{kFirst, 2}));
  EXPECT_EQ(provider_->Stats().failed_loads, 1u);
  const AskedCounts asked = provider_->Stats().asked;
  EXPECT_EQ(asked.done, 1u);
  EXPECT_EQ(asked.failed, 1u);
  EXPECT_EQ(asked.waiting, 0u);
  ASSERT_TRUE(provider_->Lend(0).ok());
  EXPECT_THAT(reads_.pending(), IsEmpty()) << "nobody was promised that it is there";
}

// Who is told is the engine's thread, between steps and while there is nothing to do.
TEST_F(Pins, AreTriedAgainEverLaterWhereTheyCannotBeRead) {
  constexpr int64_t kSecondNanos = 1'000'000'000;
  FakeClock clock;
  RigParts parts;
  parts.clock = &clock;
  provider_ = MakeProvider(reads_, Records(kRecords), std::move(parts));
  ASSERT_TRUE(provider_->Pin(three_).ok());
  reads_.CompleteNext(absl::DataLossError("torn"));
  reads_.CompleteAll();
  EXPECT_THAT(Residents(*provider_), ElementsAre(experts_[1], experts_[2]));
  const auto tried = [&] {
    EXPECT_TRUE(provider_->Lend(0).ok());
    return !reads_.pending().empty();
  };
  EXPECT_FALSE(tried()) << "at once";
  int64_t wait = kSecondNanos;
  for (int failures = 1; failures < 10; ++failures, wait = std::min(2 * wait, 60 * kSecondNanos)) {
    clock.AdvanceNanos(wait - 1);
    EXPECT_FALSE(tried());
    clock.AdvanceNanos(1);
    ASSERT_TRUE(tried()) << failures;
    reads_.CompleteNext(absl::DataLossError("torn"));
    EXPECT_FALSE(tried());
  }
  EXPECT_EQ(provider_->Stats().asked.failed, 10u);
  EXPECT_EQ(provider_->Stats().failed_loads, 10u);
  clock.AdvanceNanos(wait);
  ASSERT_TRUE(tried());
  reads_.CompleteAll();
  EXPECT_EQ(Residents(*provider_), experts_);
  EXPECT_EQ(provider_->Stats().asked.done, 3u);
  clock.AdvanceNanos(100 * wait);
  EXPECT_FALSE(tried()) << "it is there";
}

TEST(RetryTime, BeginsAnewAfterAWhileWithoutFailures) {
  constexpr int64_t kSecondNanos = 1'000'000'000;
  RetryTime time;
  int64_t now = 0, wait = kSecondNanos;
  for (; wait < 60 * kSecondNanos; wait *= 2) {
    time.OnFailure(now);
    EXPECT_FALSE(time.TakeDue(now + wait - 1));
    EXPECT_TRUE(time.TakeDue(now += wait));
    EXPECT_FALSE(time.TakeDue(now));
  }
  now += 15 * 60 * kSecondNanos;
  time.OnFailure(now);
  EXPECT_TRUE(time.TakeDue(now + kSecondNanos));
}

TEST_F(Pins, AreReadThoughTheyWereWantedFirstAndFailedThen) {
  FakeClock clock;
  RigParts parts;
  parts.clock = &clock;
  provider_ = MakeProvider(reads_, Records(kRecords), std::move(parts));
  Routing routing(kFirst, {3});
  provider_->Begin(routing.Get());
  ASSERT_TRUE(provider_->Pin(std::span(three_).first(1)).ok()) << "on its way";
  reads_.CompleteNext(absl::DataLossError("torn"));
  Drain(*provider_, reads_, {3});
  EXPECT_THAT(Residents(*provider_), IsEmpty());
  clock.AdvanceNanos(1'000'000'000);
  ASSERT_TRUE(provider_->Lend(0).ok());
  reads_.CompleteAll();
  EXPECT_THAT(Residents(*provider_), ElementsAre(experts_[0]));
}

TEST_F(Pins, AreNoLongerTriedOnceTheyAreUnpinned) {
  FakeClock clock;
  RigParts parts;
  parts.clock = &clock;
  provider_ = MakeProvider(reads_, Records(kRecords), std::move(parts));
  ASSERT_TRUE(provider_->Pin(std::span(three_).first(1)).ok());
  reads_.CompleteNext(absl::DataLossError("torn"));
  provider_->UnpinAll();
  clock.AdvanceNanos(1'000'000'000);
  ASSERT_TRUE(provider_->Lend(0).ok());
  EXPECT_THAT(reads_.pending(), IsEmpty());
}

}  // namespace pin_test
}  // namespace moed
