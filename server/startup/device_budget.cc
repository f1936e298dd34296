#include "server/startup/device_budget.h"

#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr uint64_t kOthersShare = 16;  // one part of the device's memory in so many

}  // namespace

absl::StatusOr<std::optional<uint64_t>> ChooseDeviceBudget(std::optional<uint64_t> told, uint64_t device_bytes,
                                                           std::string_view backend) {
  if (device_bytes == 0) {
    if (!told) return std::nullopt;
    return InvalidArgument("--device-budget ", FormatBytes(*told), ": the backend '", backend,
                           "' has no memory of its own; --memory-budget is for all that it uses");
  }
  if (!told) return device_bytes - device_bytes / kOthersShare;
  if (*told <= device_bytes) return told;
  return InvalidArgument("--device-budget ", FormatBytes(*told), ": the device of the backend '", backend, "' has ",
                         FormatBytes(device_bytes));
}

}  // namespace moed
