// Faults of a file pass through a backend and harm no other read.
#include "tests/io/lying_file.h"

#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

using testing::HasSubstr;

class LyingFileTest : public testing::Test {
 protected:
  LyingFileTest()
      : contents_(RandomContents(8 * kPageBytes, 31)),
        file_(std::make_shared<LyingFile>("liar", contents_)),
        backend_(MakeThreadedReadBackend("lying", file_, 2)),
        page_(Buffer::Allocate(2 * kPageBytes).value()) {}

  absl::Status Read(size_t page, size_t pages = 1) {
    return ReadNow(*backend_, page * kPageBytes, page_.span().first(pages * kPageBytes));
  }

  const std::string contents_;
  const std::shared_ptr<LyingFile> file_;
  const std::unique_ptr<ReadBackend> backend_;
  const Buffer page_;
};

TEST_F(LyingFileTest, AnErrorKeepsItsCodeAndOnlyItsReadFails) {
  file_->FailWithErrno({kPageBytes, 2 * kPageBytes}, EIO);
  const absl::Status failed = Read(1);
  EXPECT_EQ(failed.code(), absl::ErrnoToStatusCode(EIO));
  EXPECT_THAT(MessageOf(failed), HasSubstr("Input/output error"));
  EXPECT_EQ(Read(0, 2).code(), failed.code());
  EXPECT_EQ(Read(2), absl::OkStatus());
  file_->Heal();
  EXPECT_EQ(Read(1), absl::OkStatus());
}

TEST_F(LyingFileTest, AShortReadIsDataLoss) {
  file_->CutShort({kPageBytes + 10});
  const absl::Status failed = Read(0, 2);
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(failed), HasSubstr("wanted 8192 bytes, got 4106"));
  EXPECT_EQ(Read(0), absl::OkStatus());
}

TEST_F(LyingFileTest, AFlippedBitIsNotNoticedHere) {
  file_->FlipBit(kPageBytes + 5, 3);
  ASSERT_EQ(Read(0, 2), absl::OkStatus());
  std::string expected = contents_.substr(0, 2 * kPageBytes);
  expected[kPageBytes + 5] ^= 1 << 3;
  EXPECT_EQ(AsText(page_.span()), expected);
}

TEST_F(LyingFileTest, ALateAnswerDelaysOnlyItself) {
  file_->Hold({0, kPageBytes});
  absl::Notification late;
  backend_->Submit({0, page_.span().first(kPageBytes), [&](absl::Status) { late.Notify(); }});
  file_->WaitUntilHeld(1);
  const Buffer other = Buffer::Allocate(kPageBytes).value();
  EXPECT_EQ(ReadNow(*backend_, kPageBytes, other.span()), absl::OkStatus());
  EXPECT_FALSE(late.HasBeenNotified());
  file_->Release();
  late.WaitForNotification();
  EXPECT_EQ(AsText(page_.span().first(kPageBytes)), contents_.substr(0, kPageBytes));
  EXPECT_EQ(file_->reads(), 2);
}

TEST(ManualReadBackendTest, AnswersWhenToldFromItsFile) {
  const std::string contents = RandomContents(2 * kPageBytes, 32);
  ManualReadBackend backend(2, MakeMemoryFile("memory", contents));
  const Buffer page = Buffer::Allocate(kPageBytes).value();
  std::vector<absl::StatusCode> outcomes;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{kPageBytes}}) {
    backend.Submit({offset, page.span(), [&](absl::Status status) { outcomes.push_back(status.code()); }});
  }
  EXPECT_TRUE(outcomes.empty());
  EXPECT_TRUE(backend.Complete(kPageBytes));
  EXPECT_EQ(AsText(page.span()), contents.substr(kPageBytes));
  EXPECT_FALSE(backend.Complete(kPageBytes));
  EXPECT_TRUE(backend.CompleteNext(absl::DataLossError("told so")));
  EXPECT_THAT(outcomes, testing::ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace moed
