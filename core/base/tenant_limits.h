// What one of several who share a server may have of it: how much while others want it, too, and how much at most.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/base/status.h"

namespace moed {

struct TenantLimits {
  int weight = 1;                        // its share of what is computed while others wait is this beside theirs; >= 1
  std::optional<int> max_running;        // requests that are computed at once; >= 1
  std::optional<int> max_waiting;        // requests beside those that could run at once; >= 0
  std::optional<int> tokens_per_minute;  // of prompts and answers; as many may be asked for at once; >= 1
  std::optional<int> kv_percent;         // of keys and values, beyond which its own make room first; 1 to 100
  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

inline constexpr char kTenantLimitPayload[] = "moed.tenant_limit";

// RESOURCE_EXHAUSTED, known by IsTenantLimit: the server has room, its caller may have no more of it.
template <class... Parts>
absl::Status TenantLimitReached(const Parts&... message) {
  absl::Status status = ResourceExhausted(message...);
  status.SetPayload(kTenantLimitPayload, absl::Cord());
  return status;
}

inline bool IsTenantLimit(const absl::Status& status) { return status.GetPayload(kTenantLimitPayload).has_value(); }

}  // namespace moed
