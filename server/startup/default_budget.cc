#include "server/startup/default_budget.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

// Some air for neighbours. A cgroup's limit is this process's own but for what the kernel holds on its behalf, free memory is
// not.
constexpr uint64_t kCgroupPercent = 98;
constexpr uint64_t kAvailablePercent = 80;
constexpr uint64_t kSmallestBytes = 4 << 20;

// A number of bytes; "max" and absent files are no limit.
std::optional<uint64_t> ReadLimit(const std::string& path) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  if (!(file >> bytes)) return std::nullopt;
  return bytes;
}

void Lower(std::optional<MemoryLimit>& smallest, const std::string& path) {
  const std::optional<uint64_t> bytes = ReadLimit(path);
  // Version 1 writes a number near 2^63 where there is no limit.
  if (!bytes.has_value() || *bytes > (uint64_t{1} << 60)) return;
  if (!smallest.has_value() || *bytes < smallest->bytes) smallest = MemoryLimit{*bytes, path};
}

std::optional<uint64_t> AvailableBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key;
    uint64_t kilobytes = 0;
    if (fields >> key >> kilobytes && key == "MemAvailable:") return kilobytes * 1024;
  }
  return std::nullopt;
}

DefaultBudget Share(uint64_t percent, uint64_t bytes, uint64_t beside, std::string_view what) {
  const uint64_t share = bytes / 100 * percent;
  return {.bytes = std::max(kSmallestBytes, share > beside ? share - beside : 0),
          .reason = StrCat(percent, " % of ", what, ", less ", FormatBytes(beside))};
}

}  // namespace

// /proc/self/cgroup: "0::/a/b" (version 2) or "5:memory:/a/b" (version 1). Inside a container the group may be mounted as the
// root.
std::optional<MemoryLimit> FindMemoryLimit(const std::string& root) {
  std::optional<MemoryLimit> smallest;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = StrCat(",", line.substr(first + 1, second - first - 1), ",");
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string mount = root + (version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    const std::string file = version2 ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string group = line.substr(second + 1);; group.erase(group.rfind('/'))) {
      Lower(smallest, mount + (group == "/" ? "" : group) + file);
      if (group.find('/') == std::string::npos) break;
    }
  }
  return smallest;
}

absl::StatusOr<DefaultBudget> FindDefaultBudget(const std::string& root, uint64_t others) {
  const uint64_t beside = kBesideBudgetBytes + others;
  const std::optional<MemoryLimit> cgroup = FindMemoryLimit(root);
  const std::optional<uint64_t> available = AvailableBytes(root);
  if (!cgroup.has_value() && !available.has_value()) {
    return NotFound("no memory limit and no MemAvailable can be read under ", root, "/proc: say --memory-budget");
  }
  if (cgroup.has_value() && (!available.has_value() || cgroup->bytes <= *available)) {
    return Share(kCgroupPercent, cgroup->bytes, beside,
                 StrCat("the cgroup's limit of ", FormatBytes(cgroup->bytes), " (", cgroup->path, ")"));
  }
  return Share(kAvailablePercent, *available, beside, StrCat("the ", FormatBytes(*available), " that are available"));
}

}  // namespace moed
