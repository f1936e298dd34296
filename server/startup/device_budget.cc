#include "server/startup/device_budget.h"

#include <algorithm>

#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr uint64_t kOthersShare = 16;  // one part of the device's memory in so many

}  // namespace

absl::StatusOr<std::optional<uint64_t>> ChooseDeviceBudget(std::optional<uint64_t> told, const WorkingBytes& device,
                                                           std::string_view backend) {
  if (device.all == 0) {
    if (!told) return std::nullopt;
    return InvalidArgument("--device-budget ", FormatBytes(*told), ": the backend '", backend,
                           "' has no memory of its own; --memory-budget is for all that it uses");
  }
  if (!told) return std::min(device.all - device.all / kOthersShare, device.free);
  if (*told <= device.free) return told;
  return InvalidArgument("--device-budget ", FormatBytes(*told), ": the device of the backend '", backend, "' has ",
                         FormatBytes(device.all), ", of which ", FormatBytes(device.free), " are free");
}

}  // namespace moed
