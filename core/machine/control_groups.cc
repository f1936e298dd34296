#include "core/machine/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/machine/system_files.h"

namespace moed {
namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 writes a number near 2^63 where there is none

struct Group {
  std::string folder;
  bool version2 = false;
};

// From this process's group to the root. /proc/self/cgroup: "0::/a/b" (version 2) or "5:memory:/a/b" (version 1). Inside a
// container the group may be mounted as the root.
std::vector<Group> GroupsOf(const std::string& root, std::string_view controller) {
  std::vector<Group> found;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = StrCat(",", line.substr(first + 1, second - first - 1), ",");
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(StrCat(",", controller, ",")) == std::string::npos) continue;
    const std::string mount = version2 ? root + "/sys/fs/cgroup" : StrCat(root, "/sys/fs/cgroup/", controller);
    for (std::string group = line.substr(second + 1);; group.erase(group.rfind('/'))) {
      found.push_back({mount + (group == "/" ? "" : group), version2});
      if (group.find('/') == std::string::npos) break;
    }
  }
  return found;
}

uint64_t UsedBytes(const Group& group) {
  const uint64_t used = ReadNumber(group.folder + (group.version2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const uint64_t files =
      ReadNamedNumber(group.folder + "/memory.stat", group.version2 ? "inactive_file" : "total_inactive_file").value_or(0);
  return used > files ? used - files : 0;
}

}  // namespace

std::optional<GroupMemory> SmallestGroupMemory(const std::string& root) {
  std::optional<GroupMemory> smallest;
  for (const Group& group : GroupsOf(root, "memory")) {
    const std::string path = group.folder + (group.version2 ? "/memory.max" : "/memory.limit_in_bytes");
    const std::optional<uint64_t> limit = ReadNumber(path);
    if (!limit.has_value() || *limit > kNoLimit) continue;
    if (!smallest.has_value() || *limit < smallest->limit_bytes) smallest = GroupMemory{*limit, UsedBytes(group), path};
  }
  return smallest;
}

std::optional<uint64_t> MemoryLeft(const std::string& root) {
  const std::optional<uint64_t> available = ReadMemInfo(root, "MemAvailable");
  const std::optional<GroupMemory> group = SmallestGroupMemory(root);
  if (!group) return available;
  const uint64_t left = group->limit_bytes - std::min(group->used_bytes, group->limit_bytes);
  return std::min(left, available.value_or(left));
}

std::optional<GroupProcessors> SmallestGroupProcessors(const std::string& root) {
  std::optional<GroupProcessors> smallest;
  for (const Group& group : GroupsOf(root, "cpu")) {
    const std::string path = group.folder + (group.version2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    double quota = 0, period = 0;
    std::ifstream file(path);
    if (!(file >> quota)) continue;  // "max 100000" is no quota
    std::ifstream second(group.folder + "/cpu.cfs_period_us");
    if (!((group.version2 ? file : second) >> period) || quota <= 0 || period <= 0) continue;
    if (!smallest.has_value() || quota / period < smallest->processors) smallest = GroupProcessors{quota / period, path};
  }
  return smallest;
}

}  // namespace moed
