#include "core/io/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "core/base/buffer.h"
#include "core/io/posix_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

using testing::HasSubstr;

// Every file object promises the same.
void ExpectReadsLike(const RandomAccessFile& file, const std::string& contents) {
  EXPECT_EQ(file.size(), contents.size());
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const size_t offset = random() % (contents.size() + 1);
    std::vector<std::byte> out(random() % (contents.size() - offset + 1));
    ASSERT_EQ(file.ReadAt(offset, out), absl::OkStatus());
    ASSERT_EQ(AsText(out), contents.substr(offset, out.size()));
  }
  std::vector<std::byte> beyond(100);
  const absl::Status ended = file.ReadAt(contents.size() - 30, beyond);
  EXPECT_EQ(ended.code(), absl::StatusCode::kDataLoss);
  for (const std::string& part : {file.path(), std::to_string(contents.size() - 30), std::string("100"), std::string("30")}) {
    EXPECT_THAT(MessageOf(ended), HasSubstr(part));
  }
  EXPECT_EQ(AsText(beyond).substr(0, 30), contents.substr(contents.size() - 30));
  EXPECT_EQ(file.ReadAt(contents.size() + 5000, beyond).code(), absl::StatusCode::kDataLoss);
}

TEST(FileTest, BufferedReadsAnyRange) {
  const std::string contents = RandomContents(10'001, 7);
  const TempFile temp(contents);
  auto file = OpenBuffered(temp.path());
  ASSERT_EQ(file.status(), absl::OkStatus());
  ExpectReadsLike(**file, contents);
}

TEST(FileTest, MemoryReadsAnyRange) {
  const std::string contents = RandomContents(10'001, 8);
  ExpectReadsLike(*MakeMemoryFile("memory", contents), contents);
}

TEST(FileTest, OpeningSaysWhatIsWrong) {
  const std::string missing = testing::TempDir() + "moed_no_such_file";
  const absl::Status not_found = OpenBuffered(missing).status();
  EXPECT_EQ(not_found.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(not_found), HasSubstr(missing));
  const absl::Status directory = OpenBuffered(testing::TempDir()).status();
  EXPECT_EQ(directory.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(directory), HasSubstr("not a regular file"));
}

TEST(FileTest, APipeIsRefusedWithoutWaitingForItsOtherEnd) {
  const std::string pipe = testing::TempDir() + "moed_pipe_" + std::to_string(getpid());
  std::remove(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(OpenBuffered(pipe).status().code(), absl::StatusCode::kInvalidArgument);
  std::remove(pipe.c_str());
}

TEST(FileTest, AnOffsetNoFileCanHaveIsAnError) {
  const TempFile temp(RandomContents(100, 9));
  auto file = OpenBuffered(temp.path());
  ASSERT_EQ(file.status(), absl::OkStatus());
  std::byte one[1];
  EXPECT_FALSE((*file)->ReadAt(UINT64_MAX - 10, one).ok());
}

TEST(ReadProgressTest, InterruptedCallsAreRepeatedUnchanged) {
  std::byte memory[100];
  ReadProgress progress(1000, memory, 1);
  for (const int interruption : {EINTR, EAGAIN}) {
    EXPECT_EQ(progress.Take("f", -interruption), std::nullopt);
    EXPECT_EQ(progress.offset(), 1000u);
    EXPECT_EQ(progress.size(), 100u);
  }
}

TEST(ReadProgressTest, ShortAnswersContinueWhereTheyEnded) {
  std::byte memory[100];
  ReadProgress progress(1000, memory, 1);
  EXPECT_EQ(progress.Take("f", 60), std::nullopt);
  EXPECT_EQ(progress.offset(), 1060u);
  EXPECT_EQ(progress.data(), memory + 60);
  EXPECT_EQ(progress.size(), 40u);
  EXPECT_EQ(progress.Take("f", 40), absl::OkStatus());
}

TEST(ReadProgressTest, DirectReadsContinueFromAnAlignedOffset) {
  std::byte memory[3 * kDirectAlignment];
  ReadProgress progress(8 * kDirectAlignment, memory, kDirectAlignment);
  EXPECT_EQ(progress.Take("f", kDirectAlignment + 512), std::nullopt);
  EXPECT_EQ(progress.offset(), 9 * kDirectAlignment);
  EXPECT_EQ(progress.size(), 2 * kDirectAlignment);
  EXPECT_EQ(progress.Take("f", 2 * kDirectAlignment), absl::OkStatus());
}

TEST(ReadProgressTest, AnAnswerThatReachesNothingNewIsTheEnd) {
  std::byte memory[3 * kDirectAlignment];
  ReadProgress progress(0, memory, kDirectAlignment);
  ASSERT_EQ(progress.Take("some/file", kDirectAlignment + 100), std::nullopt);
  const std::optional<absl::Status> outcome = progress.Take("some/file", 100);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(*outcome), HasSubstr("some/file"));
  EXPECT_THAT(MessageOf(*outcome), HasSubstr("wanted 12288 bytes, got 4196"));
}

TEST(ReadProgressTest, ErrorsCarryTheErrnoAndThePlace) {
  std::byte memory[100];
  const std::optional<absl::Status> outcome = ReadProgress(77, memory, 1).Take("some/file", -EIO);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), absl::ErrnoToStatusCode(EIO));
  EXPECT_THAT(MessageOf(*outcome), testing::AllOf(HasSubstr("some/file"), HasSubstr("77"), HasSubstr("Input/output error")));
}

// CANCELLED is what who asked for a read says of it.
TEST(ReadProgressTest, AReadThatTheKernelGivesUpIsDataLoss) {
  std::byte memory[100];
  const std::optional<absl::Status> outcome = ReadProgress(77, memory, 1).Take("some/file", -ECANCELED);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(*outcome), testing::AllOf(HasSubstr("some/file"), HasSubstr("77"), HasSubstr("ECANCELED")));
}

TEST(ReadProgressTest, NoCallAsksForMoreThanAnInt) {
  const size_t bytes = size_t{5} << 30;
  std::byte* const unread = reinterpret_cast<std::byte*>(kPageBytes);
  ReadProgress progress(0, {unread, bytes}, kDirectAlignment);
  size_t read = 0;
  for (std::optional<absl::Status> outcome; !outcome; outcome = progress.Take("f", static_cast<int64_t>(progress.size()))) {
    ASSERT_EQ(progress.offset(), read);
    ASSERT_LE(progress.size(), size_t{1} << 30);
    read += progress.size();
  }
  EXPECT_EQ(read, bytes);
}

}  // namespace
}  // namespace moed
