#include "tools/pack/ordered_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

namespace moed {
namespace ordered_work_test {

TEST(WorkInOrderTest, TakesEveryPieceOnceInOrderOutOfItsSlot) {
  for (const int threads : {1, 2, 5}) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    for (const int window : {1, 3, 40}) {
      for (const int64_t pieces : {0, 1, 2, 39, 1000}) {
        std::vector<int64_t> slots(static_cast<size_t>(window), -1), taken;
        std::atomic<int> taking = 0;
        const absl::Status status = WorkInOrder(
            *executor, pieces, window,
            [&](int64_t piece, int slot) {
              EXPECT_EQ(slots[slot], -1) << "somebody else's";
              slots[slot] = piece;
            },
            [&](int64_t piece, int slot) {
              EXPECT_EQ(++taking, 1);
              EXPECT_EQ(slots[slot], piece);
              slots[slot] = -1;
              taken.push_back(piece);
              --taking;
              return absl::OkStatus();
            });
        EXPECT_TRUE(status.ok());
        std::vector<int64_t> expected(static_cast<size_t>(pieces));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(taken, expected) << threads << " threads, window " << window;
      }
    }
  }
}

TEST(WorkInOrderTest, TheFirstErrorEndsIt) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(3);
  constexpr int64_t kBad = 57;
  constexpr int kWindow = 4;
  int64_t last_taken = -1;
  std::atomic<int64_t> last_made = -1;
  const absl::Status status = WorkInOrder(
      *executor, 1000, kWindow,
      [&](int64_t piece, int) {
        for (int64_t seen = last_made; seen < piece && !last_made.compare_exchange_weak(seen, piece);) continue;
      },
      [&](int64_t piece, int) {
        last_taken = piece;
        return piece == kBad ? absl::DataLossError("bad") : absl::OkStatus();
      });
  EXPECT_EQ(status, absl::DataLossError("bad"));
  EXPECT_EQ(last_taken, kBad);
  EXPECT_LT(last_made, kBad + kWindow);
}

}  // namespace ordered_work_test
}  // namespace moed
