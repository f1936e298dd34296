// What a file can do wrong touches the expert it is done to, once.
#include <cerrno>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace failure_test {

using testing::UnorderedElementsAre;

struct Fault {
  std::string name;
  void (*inject)(LyingFile& file, FileRange record);
  absl::StatusCode code;
  bool damage = false;  // what is read is not what was packed
};
const Fault kFaults[] = {
    {"EIO", [](LyingFile& file, FileRange record) { file.FailWithErrno(record, EIO); }, absl::StatusCode::kDataLoss},
    {"short read",
     [](LyingFile& file, FileRange record) {
       file.CutShort({record.begin + 100, record.end});
     },
     absl::StatusCode::kDataLoss},
    {"flipped bit in gate", [](LyingFile& file, FileRange record) { file.FlipBit(record.begin + 17, 3); },
     absl::StatusCode::kDataLoss, true},
    {"flipped bit in down",
     [](LyingFile& file, FileRange record) { file.FlipBit(record.begin + ExpertStore::Get().down_offset() + 5, 7); },
     absl::StatusCode::kDataLoss, true},
};

// The first error of an expert, whether it showed at its delivery or at one of its parts.
absl::Status StatusOf(const ReadyExpert& ready) {
  MOED_RETURN_IF_ERROR(ready.status);
  for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp, ExpertPart::kDown}) {
    MOED_RETURN_IF_ERROR(ready.handle.Part(part).status());
  }
  return absl::OkStatus();
}

void TouchOneExpert(std::span<const Fault> faults) {
  for (const Fault& fault : faults) {
    for (const uint64_t split : {uint64_t{1}, UINT64_MAX}) {
      for (const int capacity : {1, 2, 8}) {
        SCOPED_TRACE(StrCat(fault.name, ", split from ", split, ", ", capacity, " records"));
        const auto file = StoreFile();
        auto backend = MakeThreadedReadBackend("lying", file, 2);
        ProviderOptions options = Records(capacity);
        options.split_read_bytes = split;
        auto provider = MakeProvider(*backend, options);
        fault.inject(*file, ExpertStore::Get().RangeOf(kFirst, 5));
        for (int attempt = 1; attempt <= 3; ++attempt) {
          Routing routing(kFirst, {2, 5, 7});
          provider->Begin(routing.Get());
          std::vector<int32_t> good;
          while (auto ready = provider->Next()) {
            const absl::Status status = StatusOf(*ready);
            if (status.ok()) good.push_back(ready->expert);
            EXPECT_EQ(status.code(), ready->expert == 5 ? fault.code : absl::StatusCode::kOk) << status;
          }
          EXPECT_THAT(good, UnorderedElementsAre(2, 7));
          EXPECT_EQ(provider->Stats().failed_loads, static_cast<uint64_t>(attempt));
          EXPECT_EQ(provider->Stats().damaged_loads, static_cast<uint64_t>(fault.damage ? attempt : 0));
        }
        file->Heal();
        const Delivered healed = RunLayer(*provider, kFirst, {2, 5, 7});
        EXPECT_TRUE(healed.failures.empty());
        EXPECT_THAT(healed.experts, UnorderedElementsAre(2, 5, 7));
      }
    }
  }
}

TEST(Failures, TouchOneExpertAndLastUntilTheFileIsWell) { TouchOneExpert(kFaults); }
TEST(Failures, OfCodedRecordsTouchOneExpertAndLastUntilTheFileIsWell) {
  const ExpertStore::Coded coded;
  TouchOneExpert(std::span(kFaults).first(3));
}

TEST(Failures, ARecordWhoseEndFailsBeforeItIsHandedOutGivesItsSlotOn) {
  ManualReadBackend reads(8, StoreFile());
  ProviderOptions options = Records(1);
  options.split_read_bytes = 1;
  auto provider = MakeProvider(reads, options);
  Routing routing(kFirst, {5, 7});
  provider->Begin(routing.Get());
  ASSERT_TRUE(reads.CompleteNext());
  ASSERT_TRUE(reads.CompleteNext(absl::DataLossError("gone")));
  EXPECT_EQ(provider->Next()->status.code(), absl::StatusCode::kDataLoss);
  reads.CompleteAll();
  const auto other = provider->Next();
  EXPECT_EQ(other->expert, 7);
  ExpectRightBytes(*other, kFirst);
}

TEST(Failures, APartThatFailsInAnOwnersHandsLeavesTheOthersReadable) {
  ManualReadBackend reads(8, StoreFile());
  ProviderOptions options = Records(2);
  options.split_read_bytes = 1;
  auto provider = MakeProvider(reads, options);
  Routing routing(kFirst, {5});
  provider->Begin(routing.Get());
  ASSERT_TRUE(reads.CompleteNext());
  {
    const auto ready = provider->Next();
    ASSERT_TRUE(reads.CompleteNext(absl::DataLossError("gone")));
    EXPECT_TRUE(ready->handle.Part(ExpertPart::kGate).ok());
    EXPECT_EQ(ready->handle.Part(ExpertPart::kDown).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(provider->Next());
  provider->Begin(routing.Get());
  reads.CompleteAll();
  ExpectRightBytes(*provider->Next(), kFirst);
}

TEST(Failures, AWrongChecksumNamesTheExpert) {
  const auto file = StoreFile();
  auto backend = MakeThreadedReadBackend("lying", file, 1);
  auto provider = MakeProvider(*backend, Records(4));
  file->FlipBit(ExpertStore::Get().OffsetOf(kSecond, 3), 0);
  const Delivered delivered = RunLayer(*provider, kSecond, {3});
  EXPECT_THAT(MessageText(delivered.failures.at(3)),
              testing::AllOf(testing::HasSubstr("expert 3"), testing::HasSubstr("layer 2")));
}

// Expert 3 is read, evicted, damaged and read again: only the stricter rule sees what happened in between.
TEST(Failures, ChecksumRulesSayWhichReadIsVerified) {
  struct Case {
    ChecksumRule rule;
    bool before;  // the damage is there from the start
    bool seen;
  };
  constexpr Case kCases[] = {{ChecksumRule::kFirstRead, true, true},
                             {ChecksumRule::kEveryRead, true, true},
                             {ChecksumRule::kFirstRead, false, false},
                             {ChecksumRule::kEveryRead, false, true}};
  for (const Case& test : kCases) {
    const auto file = StoreFile();
    auto backend = MakeThreadedReadBackend("lying", file, 1);
    ProviderOptions options = Records(1);
    options.checksums = test.rule;
    auto provider = MakeProvider(*backend, options);
    const auto right = [&](int expert) {
      Routing routing(kFirst, {expert});
      provider->Begin(routing.Get());
      const bool ok = StatusOf(*provider->Next()).ok();
      EXPECT_FALSE(provider->Next());
      return ok;
    };
    if (!test.before) {
      EXPECT_TRUE(right(3));
    }
    EXPECT_TRUE(right(4));
    file->FlipBit(ExpertStore::Get().OffsetOf(kFirst, 3), 0);
    EXPECT_EQ(right(3), !test.seen) << static_cast<int>(test.rule) << test.before;
  }
}

TEST(Failures, EverySequenceThatWaitsIsTold) {
  const auto file = StoreFile();
  auto backend = MakeThreadedReadBackend("lying", file, 1);
  auto provider = MakeProvider(*backend, Records(4));
  provider->OnSequenceStart(SequenceId(2));
  file->FailWithErrno(ExpertStore::Get().RangeOf(kFirst, 1), EIO);
  Routing routing(kFirst, {1, 2});
  routing.Add(SequenceId(2), {1, 3});
  const Delivered delivered = RunLayer(*provider, routing);
  EXPECT_THAT(delivered.experts, UnorderedElementsAre(1, 2, 3));
  EXPECT_EQ(delivered.failures.size(), 1u);
  EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, ExpertStore::Get().record_bytes());  // of 2 alone
}

TEST(Failures, AFailedGuessIsReadAgainWhenItIsWanted) {
  const auto file = StoreFile();
  ManualReadBackend reads(8, file);
  RigParts parts;
  parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, {{{kSecond, 4}, .5f}}}});
  auto provider = MakeProvider(reads, Records(4), std::move(parts));
  Routing first(kFirst, {0});
  provider->Begin(first.Get());
  ASSERT_TRUE(reads.CompleteNext());
  ASSERT_TRUE(reads.CompleteNext(absl::DataLossError("gone")));
  EXPECT_TRUE(provider->Next()->status.ok());
  EXPECT_EQ(provider->Stats().failed_loads, 1u);
  EXPECT_EQ(Outcomes(*provider, PrefetchOutcome::kWasted), 1u);
  Routing second(kSecond, {4});
  provider->Begin(second.Get());
  reads.CompleteAll();
  ExpectRightBytes(*provider->Next(), kSecond);
}

TEST(Failures, AJoinedGuessThatFailsTellsItsWaiter) {
  ManualReadBackend reads(8, StoreFile());
  RigParts parts;
  parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, {{{kSecond, 4}, .5f}}}});
  auto provider = MakeProvider(reads, Records(4), std::move(parts));
  Routing first(kFirst, {0});
  provider->Begin(first.Get());
  ASSERT_TRUE(reads.CompleteNext());
  EXPECT_TRUE(provider->Next()->status.ok());
  Routing second(kSecond, {4});
  provider->Begin(second.Get());
  ASSERT_TRUE(reads.CompleteNext(absl::DataLossError("gone")));
  EXPECT_EQ(provider->Next()->status.code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(provider->Next());
}

// No memory for a slot fails that expert, not the process.
class RefusingAllocator final : public Allocator {
 public:
  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    if (refuse) return ResourceExhausted("no memory for ", bytes, " bytes");
    return Buffer::Allocate(bytes);
  }
  bool refuse = true;
};

TEST(Failures, ARefusedSlotFailsItsExpert) {
  RefusingAllocator allocator;
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  RigParts parts;
  parts.allocator = &allocator;
  auto provider = MakeProvider(*backend, Records(4), std::move(parts));
  EXPECT_EQ(RunLayer(*provider, kFirst, {1}).failures.at(1).code(), absl::StatusCode::kResourceExhausted);
  allocator.refuse = false;
  EXPECT_TRUE(RunLayer(*provider, kFirst, {1}).failures.empty());
}

}  // namespace failure_test
}  // namespace moed
