// Errors of bytes that were read well and are not what was packed, as apart from reads that failed. Both are DATA_LOSS.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/base/status.h"

namespace moed {

inline constexpr char kDamagePayload[] = "moed/damage";

template <class... Parts>
absl::Status Damage(const Parts&... parts) {
  absl::Status status = DataLoss(parts...);
  status.SetPayload(kDamagePayload, absl::Cord());
  return status;
}
inline bool IsDamage(const absl::Status& status) { return status.GetPayload(kDamagePayload).has_value(); }

}  // namespace moed
