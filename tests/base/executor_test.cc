#include "core/base/executor.h"

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/address_space_limit.h"

namespace moed {
namespace {

class ExecutorTest : public testing::TestWithParam<int> {
 protected:
  const std::unique_ptr<Executor> executor_ = MakeThreadPool(GetParam());
};

TEST_P(ExecutorTest, HasTheThreadsItWasAskedFor) { EXPECT_EQ(executor_->threads(), GetParam()); }

TEST_P(ExecutorTest, CoversEveryIndexExactlyOnceInRangesOfWholeGrains) {
  for (const int count : {1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 4097}) {
    for (const int grain : {1, 2, 3, 8, 64, 1000, 10'000}) {
      std::vector<std::atomic<int>> visits(count);
      std::atomic<int> misshapen{0};
      executor_->ParallelFor(count, grain, [&](int begin, int end) {
        const bool in_bounds = 0 <= begin && begin < end && end <= count;
        const bool whole_grains = begin % grain == 0 && (end % grain == 0 || end == count);
        if (!in_bounds || !whole_grains) {
          ++misshapen;
          return;
        }
        for (int i = begin; i < end; ++i) ++visits[i];
      });
      ASSERT_EQ(misshapen, 0) << "count " << count << ", grain " << grain;
      for (int i = 0; i < count; ++i) ASSERT_EQ(visits[i], 1) << "index " << i << " of " << count << ", grain " << grain;
    }
  }
}

TEST_P(ExecutorTest, AnEmptyLoopRunsNothing) {
  for (const int count : {0, -1}) {
    executor_->ParallelFor(count, 1, [](int, int) { ADD_FAILURE() << "a body ran"; });
  }
}

TEST_P(ExecutorTest, ALargeCountDoesNotOverflow) {
  const int count = 2'147'483'647;
  for (const int grain : {1 << 20, 1'500'000'000, count}) {
    std::atomic<int64_t> covered{0};
    std::atomic<bool> in_bounds{true};
    executor_->ParallelFor(count, grain, [&](int begin, int end) {
      if (begin < 0 || begin >= end) in_bounds = false;
      covered += int64_t{end} - begin;
    });
    EXPECT_TRUE(in_bounds);
    EXPECT_EQ(covered, count);
  }
}

// What a loop wrote without synchronisation of its own is seen by the caller and by the next loop.
TEST_P(ExecutorTest, ConsecutiveLoopsSeeEachOthersWrites) {
  constexpr int kCount = 37;
  constexpr int kLoops = 3000;
  std::vector<int64_t> values(kCount, 0);
  for (int loop = 0; loop < kLoops; ++loop) {
    std::vector<int64_t> next(kCount);
    executor_->ParallelFor(kCount, 1, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) next[i] = values[(i + 1) % kCount] + 1;
    });
    values = next;
  }
  EXPECT_EQ(values, std::vector<int64_t>(kCount, kLoops));
}

// Each range waits for all the others of its loop, so the loop ends only if every thread takes one.
TEST_P(ExecutorTest, EveryThreadTakesPart) {
  constexpr int kLoops = 50;
  const int threads = GetParam();
  std::vector<int> written(threads);
  for (int loop = 0; loop < kLoops; ++loop) {
    std::atomic<int> arrived{0};
    std::atomic<int> stale{0};
    executor_->ParallelFor(threads, 1, [&](int begin, int end) {
      arrived += end - begin;
      while (arrived != threads) std::this_thread::yield();
      for (int i = begin; i < end; ++i) {
        if (written[i] != loop) ++stale;
        written[i] = loop + 1;
      }
    });
    ASSERT_EQ(stale, 0);
    ASSERT_EQ(written, std::vector<int>(threads, loop + 1));
  }
}

TEST(ThreadPoolTest, WhereAThreadCannotBeMadeThoseBeforeItEnd) {
  const AddressSpaceLimit limit(40 << 20);
  EXPECT_THROW(MakeThreadPool(100), std::system_error);
}

INSTANTIATE_TEST_SUITE_P(Threads, ExecutorTest, testing::Values(1, 2, 3, 5));

TEST(ExecutorLifeTest, PoolsEndWhetherOrNotTheyEverWorked) {
  for (int i = 0; i < 100; ++i) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(3);
    if (i % 2 == 0) continue;
    std::atomic<int> covered{0};
    executor->ParallelFor(10, 1, [&](int begin, int end) { covered += end - begin; });
    ASSERT_EQ(covered, 10);
  }
}

TEST(InlineExecutorTest, RunsOnTheCallerInOneRange) {
  InlineExecutor executor;
  std::vector<std::pair<int, int>> ranges;
  executor.ParallelFor(10, 3, [&](int begin, int end) { ranges.emplace_back(begin, end); });
  executor.ParallelFor(0, 3, [&](int begin, int end) { ranges.emplace_back(begin, end); });
  EXPECT_EQ(ranges, (std::vector<std::pair<int, int>>{{0, 10}}));
  EXPECT_EQ(executor.threads(), 1);
}

}  // namespace
}  // namespace moed
