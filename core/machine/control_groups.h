// What the control groups of this process allow it, version 2 or 1, ancestors included. `root` stands before every path ("" on a
// real machine).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moed {

struct GroupMemory {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;  // without pages of files that the kernel can drop; 0 where the group does not say
  std::string path;         // of the limit: "/sys/fs/cgroup/x/memory.max"
};
// The group with the smallest limit; nothing where none has one.
std::optional<GroupMemory> SmallestGroupMemory(const std::string& root = "");

// Bytes that this process may still take: what the machine has available, or what that group leaves, whichever is less. Nothing
// where neither is told.
std::optional<uint64_t> MemoryLeft(const std::string& root = "");

struct GroupProcessors {
  double processors = 0;  // as much of their time as so many give: 1.5
  std::string path;       // of the quota: "/sys/fs/cgroup/x/cpu.max"
};
// The group with the smallest quota; nothing where none has one.
std::optional<GroupProcessors> SmallestGroupProcessors(const std::string& root = "");

}  // namespace moed
