#include "server/startup/device_budget.h"

#include <algorithm>

#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

// What others and the driver's graphs take later: one part in so many, of a budget that was told no more than so much.
constexpr uint64_t kLeftShare = 16;
constexpr uint64_t kMostLeft = uint64_t{256} << 20;

}  // namespace

absl::StatusOr<std::optional<uint64_t>> ChooseDeviceBudget(std::optional<uint64_t> told, const WorkingBytes& device,
                                                           std::string_view backend) {
  if (device.all == 0) {
    if (!told) return std::nullopt;
    return InvalidArgument("--device-budget ", FormatBytes(*told), ": the backend '", backend,
                           "' has no memory of its own; --memory-budget is for all that it uses");
  }
  const uint64_t left = device.free / kLeftShare;
  if (!told) return device.free - left;
  const uint64_t most = device.free - std::min(left, kMostLeft);
  if (*told <= most) return told;
  return InvalidArgument("--device-budget ", FormatBytes(*told), ": the device of the backend '", backend, "' has ",
                         FormatBytes(device.all), ", of which ", FormatBytes(device.free), " are free: at most ",
                         FormatBytes(most), " (", most, " bytes), since the driver's graphs need memory beside it");
}

}  // namespace moed
