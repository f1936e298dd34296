// Errors that stay: the device does nothing any more for this process.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace moed {

inline constexpr char kLostDevicePayload[] = "moed/lost-device";

// `status` is an error.
inline absl::Status WithLostDevice(absl::Status status) {
  status.SetPayload(kLostDevicePayload, absl::Cord());
  return status;
}
inline bool IsLostDevice(const absl::Status& status) { return status.GetPayload(kLostDevicePayload).has_value(); }

}  // namespace moed
