#include "core/base/byte_share.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace moed {
namespace {

TEST(ByteShareTest, GivesWhatIsLeftAndTakesItBack) {
  ByteShare share(10);
  ByteShare::Held six = share.Take(6);
  EXPECT_TRUE(six);
  EXPECT_EQ(share.left(), 4u);
  EXPECT_FALSE(share.Take(5));
  EXPECT_FALSE(share.Take(UINT64_MAX));
  EXPECT_TRUE(share.Take(0));
  ByteShare::Held moved = std::move(six);
  EXPECT_EQ(share.left(), 4u);
  moved = share.Take(4);
  EXPECT_EQ(share.left(), 6u) << "the six are given back, the four are held";
  moved = {};
  EXPECT_EQ(share.left(), share.most());
  EXPECT_TRUE(share.Take(10));
}

TEST(ByteShareTest, ThreadsNeverHoldMoreThanThereIs) {
  constexpr int kThreads = 4, kRounds = 2000;
  ByteShare share(kThreads - 1);
  std::atomic<int> holding{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const ByteShare::Held held = share.Take(1);
        if (!held) continue;
        const int now = ++holding;
        int seen = most;
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        --holding;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, kThreads - 1);
  EXPECT_GE(most, 1);
  EXPECT_EQ(share.left(), share.most());
}

}  // namespace
}  // namespace moed
