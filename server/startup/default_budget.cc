#include "server/startup/default_budget.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/machine/control_groups.h"
#include "core/machine/system_files.h"

namespace moed {
namespace {

// Some air for neighbours. A cgroup's limit is this process's own but for what the kernel holds on its behalf, free memory is
// not.
constexpr uint64_t kCgroupPercent = 98;
constexpr uint64_t kAvailablePercent = 80;
constexpr uint64_t kSmallestBytes = 4 << 20;

DefaultBudget Share(uint64_t percent, uint64_t bytes, uint64_t beside, std::string_view what) {
  const uint64_t share = bytes / 100 * percent;
  std::string reason = StrCat(percent, " % of ", what, ", less ", FormatBytes(beside));
  if (share > beside + kSmallestBytes) return {.bytes = share - beside, .reason = std::move(reason)};
  return {.bytes = kSmallestBytes, .reason = StrCat("the least that is tried: no more are ", reason)};
}

}  // namespace

absl::StatusOr<DefaultBudget> FindDefaultBudget(const std::string& root, uint64_t others, uint64_t taken) {
  const uint64_t beside = kBesideBudgetBytes + others;
  const std::optional<GroupMemory> group = SmallestGroupMemory(root);
  const std::optional<uint64_t> available = ReadMemInfo(root, "MemAvailable");
  if (!group.has_value() && !available.has_value()) {
    return NotFound("no memory limit and no MemAvailable can be read under ", root, "/proc: say --memory-budget");
  }
  if (group.has_value() && (!available.has_value() || group->limit_bytes <= *available)) {
    return Share(kCgroupPercent, group->limit_bytes, beside + taken,
                 StrCat("the cgroup's limit of ", FormatBytes(group->limit_bytes), " (", group->path, ")"));
  }
  return Share(kAvailablePercent, *available, beside, StrCat("the ", FormatBytes(*available), " that are available"));
}

absl::Status CheckMachineHas(uint64_t budget, uint64_t beside, const std::string& root) {
  const std::optional<GroupMemory> limit = SmallestGroupMemory(root);
  if (limit && (limit->limit_bytes < beside || budget > limit->limit_bytes - beside)) {
    return InvalidArgument(FormatBytes(budget), " and ", FormatBytes(beside), " beside them are more than the cgroup's limit of ",
                           FormatBytes(limit->limit_bytes), " (", limit->path, ")");
  }
  const std::optional<uint64_t> total = ReadMemInfo(root, "MemTotal");
  if (total && (*total < beside || budget > *total - beside)) {
    return InvalidArgument(FormatBytes(budget), " and ", FormatBytes(beside),
                           " beside them are more than the machine's memory of ", FormatBytes(*total));
  }
  return absl::OkStatus();
}

}  // namespace moed
