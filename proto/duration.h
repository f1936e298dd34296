// Seconds as google.protobuf.Duration.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "google/protobuf/duration.pb.h"

namespace moed {

// Cut to whole nanoseconds, and to the 10,000 years either way that a Duration has. What is no number is 0.
inline google::protobuf::Duration DurationOf(double seconds) {
  constexpr double kMost = 315576000000;
  const double within = std::isnan(seconds) ? 0 : std::clamp(seconds, -kMost, kMost);
  google::protobuf::Duration duration;
  duration.set_seconds(static_cast<int64_t>(within));
  duration.set_nanos(static_cast<int32_t>((within - static_cast<double>(duration.seconds())) * 1e9));
  return duration;
}

}  // namespace moed
