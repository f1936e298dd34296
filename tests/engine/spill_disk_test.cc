#include "core/engine/spill_disk.h"

#include <gtest/gtest.h>

#include "tests/engine/spilled_file.h"

namespace moed {
namespace spill_disk_test {

constexpr size_t kBlock = 4096;

class SpillDiskTest : public testing::Test {
 protected:
  std::vector<SpillPiece> Pieces(std::vector<std::byte>& memory) {
    std::vector<SpillPiece> pieces;
    for (size_t begin = 0; begin < memory.size(); begin += kBlock) {
      const size_t bytes = std::min(kBlock, memory.size() - begin);
      pieces.push_back({memory.data() + begin, static_cast<uint32_t>(bytes), static_cast<uint32_t>(pieces.size()), 0});
    }
    return pieces;
  }
  SpillJob Await() {
    disk_->AwaitDone(absl::InfiniteDuration());
    return disk_->TakeDone().at(0);
  }

  std::shared_ptr<SpilledFile> file_ = std::make_shared<SpilledFile>();
  FakeClock clock_;
  std::unique_ptr<SpillDisk> disk_ = *SpillDisk::Create(file_, kBlock, clock_);
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kBlock + 100, std::byte{7});
};

TEST_F(SpillDiskTest, WhatWasWrittenIsRead) {
  disk_->Submit(SpillWay::kWrite, Pieces(memory_));
  const SpillJob written = Await();
  EXPECT_EQ(written.done, 3u);
  std::vector<std::byte> back(memory_.size());
  std::vector<SpillPiece> pieces = Pieces(back);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].checksum = written.pieces[i].checksum;
  disk_->Submit(SpillWay::kRead, pieces);
  const SpillJob read = Await();
  EXPECT_EQ(read.status, absl::OkStatus());
  EXPECT_EQ(back, memory_);
}

TEST_F(SpillDiskTest, AWrongBitIsDataLossAndGoesNowhere) {
  disk_->Submit(SpillWay::kWrite, Pieces(memory_));
  const SpillJob written = Await();
  file_->FlipBits(kBlock, 1 << 30);
  std::vector<std::byte> back(memory_.size());
  std::vector<SpillPiece> pieces = Pieces(back);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].checksum = written.pieces[i].checksum;
  disk_->Submit(SpillWay::kRead, pieces);
  const SpillJob read = Await();
  EXPECT_EQ(read.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(read.done, 1u);
  EXPECT_EQ(back[kBlock], std::byte{0});
}

TEST_F(SpillDiskTest, AFullDiskSaysHowFarItCame) {
  file_->LimitTo(2 * kBlock);
  disk_->Submit(SpillWay::kWrite, Pieces(memory_));
  const SpillJob written = Await();
  EXPECT_EQ(written.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(written.done, 2u);
}

// Its memory may be used for something else at once, while the block that was copied is still under way.
TEST_F(SpillDiskTest, ACancelledJobLeavesItsMemoryAlone) {
  file_->HoldWrites(true);
  const uint64_t ticket = disk_->Submit(SpillWay::kWrite, Pieces(memory_));
  file_->AwaitWriteHeld();
  const SpillJob cancelled = disk_->Cancel(ticket);
  EXPECT_EQ(cancelled.done, 0u);
  EXPECT_EQ(cancelled.pieces.size(), 3u);
  std::fill(memory_.begin(), memory_.end(), std::byte{9});
  file_->HoldWrites(false);
  disk_->Submit(SpillWay::kWrite, Pieces(memory_));
  EXPECT_EQ(Await().done, 3u);
  EXPECT_EQ(file_->writes(), 4);
  EXPECT_TRUE(disk_->TakeDone().empty());
  EXPECT_EQ(disk_->Cancel(ticket).ticket, 0u) << "known no more";
}

}  // namespace spill_disk_test
}  // namespace moed
