// When a refused request may be tried again. It travels with the status, as a payload.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"

namespace moed {

inline constexpr double kRetrySeconds = 1;  // where nothing was measured
inline constexpr char kRetryAfterPayload[] = "moed.retry_after_milliseconds";

// At least a tenth of a second, at most an hour.
inline absl::Status RetryAfter(absl::Status status, double seconds) {
  const auto milliseconds = static_cast<int64_t>(std::clamp(seconds, .1, 3600.) * 1000);
  status.SetPayload(kRetryAfterPayload, absl::Cord(std::to_string(milliseconds)));
  return status;
}

inline std::optional<double> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  int64_t milliseconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &milliseconds)) return std::nullopt;
  return static_cast<double>(milliseconds) / 1000;
}

}  // namespace moed
