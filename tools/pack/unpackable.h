// Errors of weights that no run can pack: not finite, or too large for what they become. As apart from errors of files.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "core/base/status.h"

namespace moed {

inline constexpr char kUnpackablePayload[] = "moed/unpackable";

// The same error, told apart.
inline absl::Status AsUnpackable(absl::Status status) {
  status.SetPayload(kUnpackablePayload, absl::Cord());
  return status;
}
template <class... Parts>
absl::Status Unpackable(const Parts&... parts) {
  return AsUnpackable(InvalidArgument(parts...));
}
inline bool IsUnpackable(const absl::Status& status) { return status.GetPayload(kUnpackablePayload).has_value(); }

}  // namespace moed
