// A damaged journal costs work, never a piece: what is read of it is a beginning of what was written.
#include "core/store/journal.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/base/damaged_bytes.h"
#include "tests/store/small_store.h"

namespace moed {
namespace {

constexpr uint64_t kIdentity = 0x1234;
constexpr size_t kRowBytes = 24;

class DamagedJournal : public ::testing::Test {
 protected:
  DamagedJournal() {
    for (uint64_t piece = 0; piece < 9; ++piece) written_.push_back({piece * 7, ~piece});
    EXPECT_TRUE(Journal::Create(path_, {kIdentity, written_}).ok());
    good_ = FileContents(path_);
  }
  // All rows before the first one that is damaged, and none from it on.
  void ExpectRowsBefore(const std::string& damaged, size_t at) {
    std::ofstream(path_, std::ios::binary) << damaged;
    const auto read = Journal::Read(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    const size_t rows = FirstDamaged(damaged) / kRowBytes;
    ASSERT_EQ(read->has_value(), rows > 0) << "byte " << at;
    if (rows == 0) return;
    EXPECT_EQ((*read)->identity, kIdentity) << "byte " << at;
    const std::vector<JournalEntry>& entries = (*read)->entries;
    ASSERT_EQ(entries.size(), rows - 1) << "byte " << at;
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].piece, written_[i].piece) << "byte " << at;
      EXPECT_EQ(entries[i].checksum, written_[i].checksum) << "byte " << at;
    }
  }

  // The first byte that is not as it was written.
  size_t FirstDamaged(const std::string& damaged) const {
    return static_cast<size_t>(std::ranges::mismatch(damaged, good_).in1 - damaged.begin());
  }

  MemoryFolder folder_;
  const std::string path_ = folder_ / "s.journal";
  std::vector<JournalEntry> written_;
  std::string good_;
};

TEST_F(DamagedJournal, UndamagedItIsReadWhole) {
  const auto read = Journal::Read(path_);
  ASSERT_TRUE(read.ok() && read->has_value());
  EXPECT_EQ((*read)->entries.size(), written_.size());
}

TEST_F(DamagedJournal, TruncatedAnywhere) {
  ForEachTruncation(good_, {}, [&](const std::string& damaged, size_t at) { ExpectRowsBefore(damaged, at); });
}

TEST_F(DamagedJournal, AnyByteFlipped) {
  ForEachFlip(good_, {}, 8, [&](const std::string& damaged, size_t at) { ExpectRowsBefore(damaged, at); });
}

TEST_F(DamagedJournal, Garbled) {
  ForGarbled(good_, {}, 3000, 7, [&](const std::string& damaged, size_t at) { ExpectRowsBefore(damaged, at); });
}

TEST_F(DamagedJournal, WhatCannotBeReadIsNotAbsent) {
  const std::string loop = folder_ / "loop", folder = folder_ / "folder";
  std::filesystem::create_symlink(loop, loop);
  std::filesystem::create_directory(folder);
  for (const std::string& path : {loop, folder, path_ + "/below a file"}) {
    const absl::Status status = Journal::Read(path).status();
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(path)) << status;
  }
  const auto absent = Journal::Read(folder_ / "no such file");
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_FALSE(absent->has_value());
}

TEST_F(DamagedJournal, OfRandomBytesNothingIsRead) {
  for (size_t size = 0; size < 300; ++size) {
    std::ofstream(path_, std::ios::binary) << RandomBytes(size, size);
    const auto read = Journal::Read(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_FALSE(read->has_value()) << size;
  }
}

}  // namespace
}  // namespace moed
