// Errors of bytes that were read well and are not what this version packs, as apart from files that cannot be opened or read.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/base/status.h"

namespace moed {

inline constexpr char kDamagePayload[] = "moed/damage";

// The same error, told apart.
inline absl::Status AsDamage(absl::Status status) {
  status.SetPayload(kDamagePayload, absl::Cord());
  return status;
}
template <class... Parts>
absl::Status Damage(const Parts&... parts) {
  return AsDamage(DataLoss(parts...));
}
inline bool IsDamage(const absl::Status& status) { return status.GetPayload(kDamagePayload).has_value(); }

}  // namespace moed
