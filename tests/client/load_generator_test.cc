#include "client/load_generator.h"

#include <gtest/gtest.h>

#include "core/base/status.h"

namespace moed {
namespace {

TEST(Percentiles, AreOfTheNearestRank) {
  const Percentiles p = PercentilesOf({10, 1, 9, 2, 8, 3, 7, 4, 6, 5});
  EXPECT_EQ(p.p50, 5);
  EXPECT_EQ(p.p90, 9);
  EXPECT_EQ(p.p99, 10);
  EXPECT_DOUBLE_EQ(p.mean, 5.5);
  EXPECT_EQ(PercentilesOf({3}).p50, 3);
  EXPECT_EQ(PercentilesOf({3}).p99, 3);
  EXPECT_EQ(PercentilesOf({}).p99, 0);
}

TEST(LoadReport, CountsFailuresByNameAndLeavesThemOutOfTheTimes) {
  LoadSample good{absl::OkStatus(), 0.5, 0.1, 2.0, 16, false};
  LoadSample one_token{absl::OkStatus(), 0.25, 0, 0.25, 1, true};
  LoadSample refused{ResourceExhausted("queue full"), 0, 0, 0.001, 0, false};
  LoadSample broken{DataLoss("expert"), 0.1, 0.1, 0.3, 3, false};
  const LoadReport report = Summarise({good, one_token, refused, broken, refused}, 4);
  EXPECT_EQ(report.ok, 2);
  EXPECT_EQ(report.tokens, 20);
  EXPECT_EQ(report.late, 1);
  EXPECT_EQ(report.errors, (std::map<std::string, int>{{"RESOURCE_EXHAUSTED", 2}, {"DATA_LOSS", 1}}));
  EXPECT_EQ(report.ttft.p50, 0.25);
  EXPECT_EQ(report.tpot.p99, 0.1) << "a single token has no time per output token";
  EXPECT_EQ(report.latency.p99, 2.0);
}

}  // namespace
}  // namespace moed
