// Which bytes of a file its samples are.
#include "core/store/sample_checksum.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace moed {
namespace {

class SampleChecksumTest : public testing::Test {
 protected:
  uint64_t Of(const std::string& bytes) const {
    std::ofstream(folder_ / "file", std::ios::binary) << bytes;
    return SampleChecksum(folder_ / "file").value();
  }

  MemoryFolder folder_;
};

TEST_F(SampleChecksumTest, EveryByteOfASmallFileCounts) {
  for (const size_t size : {1, 4096, 65'537, 131'072}) {
    std::string bytes(size, 'a');
    const uint64_t before = Of(bytes);
    EXPECT_EQ(Of(bytes), before);
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      ++bytes[at];
      EXPECT_NE(Of(bytes), before) << size << " " << at;
      --bytes[at];
    }
  }
  Of("");
}

TEST_F(SampleChecksumTest, EndsAndPlacesBetweenCountOfALargeFile) {
  std::string bytes((4 << 20) + 1, 'a');
  const uint64_t before = Of(bytes);
  for (const size_t at : {size_t{0}, size_t{65'535}, bytes.size() / 17 * 16 + 4095, bytes.size() - 65'536, bytes.size() - 1}) {
    ++bytes[at];
    EXPECT_NE(Of(bytes), before) << at;
    --bytes[at];
  }
  ++bytes[65'536];
  EXPECT_EQ(Of(bytes), before) << "not all of it is read";
}

TEST_F(SampleChecksumTest, WhatCannotBeReadIsAnError) { EXPECT_FALSE(SampleChecksum(folder_ / "none").ok()); }

}  // namespace
}  // namespace moed
