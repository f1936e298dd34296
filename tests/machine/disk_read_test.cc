#include "core/machine/disk_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/base/status.h"
#include "core/io/file.h"
#include "core/machine/memory_read.h"
#include "core/machine/scratch_file.h"
#include "tests/temporary_folder.h"

namespace moed {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr size_t kBlock = 4096;

// Counts what is read from where; fails for one offset.
class CountedFile final : public RandomAccessFile {
 public:
  explicit CountedFile(uint64_t broken = UINT64_MAX) : broken_(broken) {}
  uint64_t size() const override { return 100 * kBlock; }
  const std::string& path() const override { return path_; }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte>) const override {
    const std::lock_guard lock(mutex_);
    ++reads_[offset / kBlock];
    return offset == broken_ ? DataLoss("broken") : absl::OkStatus();
  }
  std::map<uint64_t, int> reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

 private:
  const std::string path_ = "counted";
  const uint64_t broken_;
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, int> reads_;
};

TEST(DiskRead, EveryBlockIsReadAndTheFirstErrorIsKept) {
  const FileBlocks blocks{.offset = 10 * kBlock, .count = 5, .bytes = kBlock};
  const Buffer memory = *Buffer::Allocate(2 * kBlock);
  const std::vector<uint64_t> numbers = {0, 4, 4, 2};
  const auto whole = std::make_shared<CountedFile>();
  EXPECT_TRUE(ReadBlocks(*MakeThreadedReadBackend("t", whole, 2), blocks, numbers, 2, memory).ok());
  EXPECT_THAT(whole->reads(), ElementsAre(Pair(10, 1), Pair(12, 1), Pair(14, 2)));
  const auto broken = std::make_shared<CountedFile>(12 * kBlock);
  EXPECT_EQ(ReadBlocks(*MakeThreadedReadBackend("t", broken, 2), blocks, numbers, 2, memory), DataLoss("broken"));
}

TEST(DiskRead, MeasuringStaysWithinItsBytesAndItsFile) {
  const auto file = std::make_shared<CountedFile>();
  const auto reads = MakeThreadedReadBackend("t", file, 2);
  const FakeClock clock;  // no time passes
  const FileBlocks blocks{.offset = 10 * kBlock, .count = 5, .bytes = kBlock};
  const auto measured = MeasureDiskRead(*reads, blocks, {.seconds = 1, .bytes = 20 * kBlock, .depth = 4}, clock);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->turns, 4) << "of 5 blocks each";
  int all = 0;
  for (const auto& [block, count] : file->reads()) {
    EXPECT_TRUE(block >= 10 && block < 15) << block;
    all += count;
  }
  EXPECT_EQ(all, 4 + 4 * 5) << "the first ones touch memory";
  EXPECT_TRUE(absl::IsInvalidArgument(MeasureDiskRead(*reads, {}, {}, clock).status()));
}

TEST(DiskRead, AStraightLineThroughOneReadAndABurst) {
  const DiskRead disk{.one_seconds = 2, .burst_seconds = 5, .depth = 4, .block_bytes = 10};
  EXPECT_THAT(disk.Seconds(0), DoubleEq(0));
  EXPECT_THAT(disk.Seconds(1), DoubleEq(2));
  EXPECT_THAT(disk.Seconds(2), DoubleEq(3));
  EXPECT_THAT(disk.Seconds(4), DoubleEq(5));
  EXPECT_THAT(disk.BytesPerSecond(), DoubleEq(8));
  const DiskRead odd{.one_seconds = 2, .burst_seconds = 1, .depth = 4, .block_bytes = 10};
  EXPECT_THAT(odd.Seconds(4), DoubleEq(2)) << "never less for more";
}

TEST(ScratchFileTest, HasNoNameAndTheBytesThatWereAskedFor) {
  const TemporaryFolder made;
  const std::string folder = made / "folder";
  std::filesystem::create_directories(folder);
  const FakeClock clock;
  std::string path;
  {
    const auto file = ScratchFile::Create(folder, {.least = 1 << 20, .most = 3 << 20, .seconds = 1}, clock);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->bytes(), 3u << 20) << "no time has passed";
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    path = (*file)->path();
    const auto opened = OpenBuffered(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->size(), 3u << 20);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto short_file = ScratchFile::Create(folder, {.least = 1 << 20, .most = 3 << 20, .seconds = 0}, clock);
  EXPECT_EQ((*short_file)->bytes(), 1u << 20) << "its time is up at once";
  std::filesystem::remove_all(folder);
  EXPECT_THAT(std::string(ScratchFile::Create(folder, {}, clock).status().message()), HasSubstr(folder));
}

TEST(MemoryBandwidthTest, TakesPiecesOfWhatItIsGiven) {
  const auto measured = MeasureMemoryBandwidth(2, 3 * kReadPieceBytes + 1);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->memory_bytes, 3 * kReadPieceBytes);
  EXPECT_THAT(measured->bytes_per_second, Gt(0));
  EXPECT_EQ(MeasureMemoryBandwidth(1, 0)->memory_bytes, kReadPieceBytes);
}

}  // namespace
}  // namespace moed
