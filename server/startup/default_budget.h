// The memory budget when none is given.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace moed {

struct DefaultBudget {
  uint64_t bytes = 0;
  std::string reason;  // "98 % of the cgroup's limit of 4.0 GiB (/sys/fs/cgroup/x/memory.max)"
};

// From the smallest memory limit of this process's cgroups (version 2 or 1, ancestors included) or the machine's available
// memory, whichever is less. `root` stands before every path ("" on a real machine). NOT_FOUND when none can be read.
absl::StatusOr<DefaultBudget> FindDefaultBudget(const std::string& root = "");

}  // namespace moed
