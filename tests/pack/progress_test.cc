#include "tools/terminal/progress.h"

#include <gtest/gtest.h>

#include "tools/terminal/amount.h"

namespace moed {
namespace progress_test {

TEST(AmountTest, ReadsLikePeopleWrite) {
  EXPECT_EQ(CountText(12), "12");
  EXPECT_EQ(CountText(3.14), "3.1");
  EXPECT_EQ(CountText(0.014), "0.014");
  EXPECT_EQ(SecondsText(0.2), "0:01");
  EXPECT_EQ(SecondsText(61), "1:01");
  EXPECT_EQ(SecondsText(3723), "1:02:03");
  EXPECT_EQ(Grouped(7), "7");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
}

TEST(ProgressTest, RateCountsOnlyWhatThisRunDid) {
  FakeClock clock;
  std::FILE* out = std::tmpfile();
  Progress progress("packing", 100 << 20, 40 << 20, out, clock);
  clock.AdvanceNanos(2'000'000'000);
  progress.Update(60 << 20);
  EXPECT_EQ(progress.Line(), "packing 60.0 MiB of 100.0 MiB (60 %), 10.0 MiB/s, 0:04 left");
  EXPECT_EQ(std::ftell(out), 0) << "off a terminal only every few seconds";
  clock.AdvanceNanos(4'000'000'000);
  progress.Update(70 << 20);
  EXPECT_GT(std::ftell(out), 0);
  progress.Finish();
  std::rewind(out);
  char text[400] = {};
  const size_t count = std::fread(text, 1, sizeof text - 1, out);
  std::fclose(out);
  EXPECT_EQ(std::string(text, count),
            "packing 70.0 MiB of 100.0 MiB (70 %), 5.0 MiB/s, 0:06 left\npacking 60.0 MiB in 6.0 s (10.0 MiB/s)\n");
}

TEST(ProgressTest, CountsOtherThingsThanBytes) {
  FakeClock clock;
  Progress progress("measuring", 40, 10, stderr, clock, CountText);
  clock.AdvanceNanos(4'000'000'000);
  progress.Update(20);
  EXPECT_EQ(progress.Line(), "measuring 20 of 40 (50 %), 2.5/s, 0:08 left");
}

}  // namespace progress_test
}  // namespace moed
