#include "bench/replay/simulated_disk.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace moed {
namespace {

TEST(SimulatedDisk, ReadsTakeTheirTimeOneAfterTheOther) {
  SimulatedDisk disk(1000);
  std::array<std::byte, 100> bytes{};
  std::vector<int64_t> ends;
  int left = 3;
  std::function<void()> read = [&] {
    disk.Submit({0, bytes, [&](absl::Status status) {
                   EXPECT_TRUE(status.ok());
                   ends.push_back(disk.NowNanos());
                   if (--left > 0) read();
                 }});
  };
  read();
  EXPECT_FALSE(disk.idle());
  disk.Advance(150'000'000);  // one and a half reads of 0.1 s
  EXPECT_EQ(ends, std::vector<int64_t>{100'000'000});
  EXPECT_EQ(disk.NowNanos(), 150'000'000);
  disk.AwaitRead();
  EXPECT_EQ(disk.NowNanos(), 200'000'000);
  disk.Advance(500'000'000);
  EXPECT_EQ(ends, (std::vector<int64_t>{100'000'000, 200'000'000, 300'000'000}));
  EXPECT_EQ(disk.NowNanos(), 700'000'000);
  EXPECT_TRUE(disk.idle());
  read();  // begins now, not when the last one ended
  disk.AwaitRead();
  EXPECT_EQ(disk.NowNanos(), 800'000'000);
}

}  // namespace
}  // namespace moed
