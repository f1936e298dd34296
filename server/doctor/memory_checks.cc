#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/buffer.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/machine/control_groups.h"
#include "core/machine/memory_read.h"
#include "core/machine/system_files.h"
#include "core/serving/serving_plan.h"
#include "server/doctor/check.h"
#include "server/startup/default_budget.h"

namespace moed {
namespace {

constexpr uint64_t kLeastBytes = 128 << 20;  // a small model's budget, and what the process needs beside it
constexpr uint64_t kRingBytes = 64 << 10;    // what io_uring's rings lock at the default queue depth, generously

std::string BytesOrUnlimited(rlim_t bytes) { return bytes == RLIM_INFINITY ? "unlimited" : FormatBytes(bytes); }

// "5.10.0-21-amd64" is before 5.12, from which on rings are not counted.
bool CountsRings(const std::string& release) {
  int major = 0, minor = 0;
  return std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2 && (major < 5 || (major == 5 && minor < 12));
}

}  // namespace

Finding LookAtMemoryLimit(const Machine& machine) {
  Finding finding;
  const std::optional<uint64_t> available = ReadMemInfo(machine.root, "MemAvailable");
  const std::optional<GroupMemory> group = SmallestGroupMemory(machine.root);
  if (available.has_value()) finding.values["available_bytes"] = *available;
  finding.found = available.has_value() ? StrCat(FormatBytes(*available), " available") : "available memory unknown";
  std::optional<uint64_t> free = available;
  if (group.has_value()) {
    const uint64_t left = group->limit_bytes > group->used_bytes ? group->limit_bytes - group->used_bytes : 0;
    free = std::min(left, available.value_or(left));
    finding.values["cgroup_limit_bytes"] = group->limit_bytes;
    finding.values["cgroup_used_bytes"] = group->used_bytes;
    finding.values["cgroup_file"] = group->path;
    finding.found +=
        StrCat(", ", FormatBytes(left), " of the cgroup's ", FormatBytes(group->limit_bytes), " free (", group->path, ")");
  } else {
    finding.found += ", no cgroup limit";
  }
  const absl::StatusOr<DefaultBudget> budget = FindDefaultBudget(machine.root);
  if (!budget.ok()) {
    finding.state = CheckState::kUnavailable;
    finding.remedy = StrCat(budget.status().message());
    return finding;
  }
  finding.values["default_memory_budget_bytes"] = budget->bytes;
  finding.found += StrCat("; moed takes ", FormatBytes(budget->bytes), " by default");
  if (*free < kLeastBytes) {
    finding.state = CheckState::kUnavailable;
    finding.prevents_serving = true;
    finding.remedy = StrCat("free memory or raise the limit: the smallest models need ", FormatBytes(kLeastBytes));
  } else if (budget->bytes + kBesideBudgetBytes > *free) {
    finding.state = CheckState::kSlower;
    finding.remedy = StrCat("others use the memory of this limit: say --memory-budget, at most ",
                            FormatBytes(*free - kBesideBudgetBytes), " as of now");
  }
  return finding;
}

Finding LookAtLockedMemory(const Machine& machine) {
  Finding finding;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    finding.state = CheckState::kUnavailable;
    finding.found = "RLIMIT_MEMLOCK cannot be read";
    return finding;
  }
  const std::string release = ReadLine(machine.root + "/proc/sys/kernel/osrelease").value_or("");
  const bool counts = CountsRings(release);
  if (limit.rlim_cur != RLIM_INFINITY) finding.values["limit_bytes"] = static_cast<uint64_t>(limit.rlim_cur);
  finding.values["wanted_bytes"] = counts ? kRingBytes : uint64_t{0};
  finding.values["kernel"] = release;
  finding.found = StrCat(BytesOrUnlimited(limit.rlim_cur), "; moed locks no buffers, ",
                         counts ? StrCat("and this kernel counts io_uring's rings, ", FormatBytes(kRingBytes))
                                : "and this kernel does not count io_uring's rings");
  if (counts && limit.rlim_cur < kRingBytes) {
    finding.state = CheckState::kSlower;
    finding.remedy = "ulimit -l 64, LimitMEMLOCK=64K in a systemd unit, or --ulimit memlock=65536 of a container";
  }
  return finding;
}

Finding LookAtSwap(const Machine& machine) {
  Finding finding;
  const uint64_t total = ReadMemInfo(machine.root, "SwapTotal").value_or(0);
  const uint64_t free = ReadMemInfo(machine.root, "SwapFree").value_or(0);
  finding.values["total_bytes"] = total;
  finding.values["used_bytes"] = total - std::min(free, total);
  finding.found = total == 0 ? "none" : StrCat(FormatBytes(total), ", ", FormatBytes(total - std::min(free, total)), " used");
  if (total > 0) {
    finding.state = CheckState::kSlower;
    finding.remedy = "the kernel may write experts that are in memory to disk: swapoff -a, or MemorySwapMax=0 for moed's unit";
  }
  return finding;
}

Finding LookAtHugePages(const Machine& machine) {
  Finding finding;
  const std::optional<std::string> mode = ReadChosenWord(machine.root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (mode.has_value()) finding.values["transparent"] = *mode;
  finding.found = mode.has_value() ? StrCat("transparent huge pages: ", *mode) : "this kernel has no transparent huge pages";
  if (!mode.has_value() || *mode == "never") {
    finding.state = mode.has_value() ? CheckState::kSlower : CheckState::kUnavailable;
    finding.remedy = "weights are read faster from large pages: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    if (!mode.has_value()) finding.remedy = "a kernel with CONFIG_TRANSPARENT_HUGEPAGE";
  }
  return finding;
}

Finding LookAtMemoryBandwidth(const Machine& machine) {
  Finding finding;
  constexpr size_t kMostBytes = 128 << 20;  // beyond most caches
  const absl::StatusOr<DefaultBudget> budget = FindDefaultBudget(machine.root);
  const uint64_t allowed = budget.ok() ? budget->bytes / 2 : kMostBytes;
  const absl::StatusOr<MemoryBandwidth> measured =
      MeasureMemoryBandwidth(ServingOptionsOfThisMachine().threads, std::min<uint64_t>(kMostBytes, allowed));
  if (!measured.ok()) {
    finding.state = CheckState::kUnavailable;
    finding.found = StrCat(measured.status().message());
    return finding;
  }
  finding.values["bytes_per_second"] = measured->bytes_per_second;
  finding.values["threads"] = measured->threads;
  finding.values["measured_bytes"] = measured->memory_bytes;
  finding.found = absl::StrFormat("%.1f GB/s read by %d threads (%s)", measured->bytes_per_second * 1e-9, measured->threads,
                                  std::string(measured->form));
  return finding;
}

}  // namespace moed
