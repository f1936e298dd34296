#include "proto/duration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moed {
namespace duration_test {

TEST(DurationOf, IsWhatProtobufCanHold) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr int64_t kMost = 315576000000;
  const struct {
    double seconds;
    int64_t whole;
    int32_t nanos;
  } cases[] = {
      {0, 0, 0},          {9.5, 9, 500'000'000}, {-9.5, -9, -500'000'000}, {0.25, 0, 250'000'000},  {1e9, 1'000'000'000, 0},
      {1e300, kMost, 0},  {kInfinity, kMost, 0}, {-1e300, -kMost, 0},      {-kInfinity, -kMost, 0}, {std::nan(""), 0, 0},
      {3.2e11, kMost, 0}, {1e-10, 0, 0}};
  for (const auto& [seconds, whole, nanos] : cases) {
    const google::protobuf::Duration duration = DurationOf(seconds);
    EXPECT_EQ(duration.seconds(), whole) << seconds;
    EXPECT_EQ(duration.nanos(), nanos) << seconds;
  }
}

}  // namespace duration_test
}  // namespace moed
