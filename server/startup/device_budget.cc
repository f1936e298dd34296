#include "server/startup/device_budget.h"

#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr uint64_t kLeftShare = 16;  // one part in so many: for others, and for kernels and graphs that the driver loads later

}  // namespace

absl::StatusOr<std::optional<uint64_t>> ChooseDeviceBudget(std::optional<uint64_t> told, const WorkingBytes& device,
                                                           std::string_view backend) {
  if (device.all == 0) {
    if (!told) return std::nullopt;
    return InvalidArgument("--device-budget ", FormatBytes(*told), ": the backend '", backend,
                           "' has no memory of its own; --memory-budget is for all that it uses");
  }
  if (!told) return device.free - device.free / kLeftShare;
  if (*told <= device.free) return told;
  return InvalidArgument("--device-budget ", FormatBytes(*told), ": the device of the backend '", backend, "' has ",
                         FormatBytes(device.all), ", of which ", FormatBytes(device.free), " are free");
}

}  // namespace moed
