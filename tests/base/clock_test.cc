#include "core/base/clock.h"

#include "gtest/gtest.h"

namespace moed {
namespace {

TEST(ClockTest, TheFakeMovesOnlyWhenTold) {
  FakeClock clock;
  EXPECT_EQ(clock.NowNanos(), 0);
  clock.AdvanceNanos(1'500'000'000);
  EXPECT_EQ(clock.NowNanos(), 1'500'000'000);
  EXPECT_DOUBLE_EQ(clock.NowSeconds(), 1.5);
  clock.AdvanceNanos(1);
  EXPECT_EQ(clock.NowNanos(), 1'500'000'001);
}

TEST(ClockTest, TheRealOneNeverGoesBack) {
  int64_t last = Clock::Real().NowNanos();
  EXPECT_GT(last, 0);
  for (int i = 0; i < 10'000; ++i) {
    const int64_t now = Clock::Real().NowNanos();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, SecondsBetween) { EXPECT_DOUBLE_EQ(SecondsBetween(1'000'000'000, 1'250'000'000), 0.25); }

}  // namespace
}  // namespace moed
