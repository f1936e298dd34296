// The memory budget when none is given.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

// What the process needs beside its budget.
inline constexpr uint64_t kBesideBudgetBytes = 64 << 20;

struct DefaultBudget {
  uint64_t bytes = 0;
  std::string reason;  // "98 % of the cgroup's limit of 4.0 GiB (/sys/fs/cgroup/x/memory.max), less 64.0 MiB"
};

// From the smallest memory limit of this process's cgroups or, where that is less, of the available memory. `root` stands
// before every path ("" on a real machine). `others`: what programs beside the daemon need. `taken`: what this process has taken
// beside its budget, which a limit counts and available memory no longer has. NOT_FOUND when none can be read.
absl::StatusOr<DefaultBudget> FindDefaultBudget(const std::string& root = "", uint64_t others = 0, uint64_t taken = 0);

// INVALID_ARGUMENT where the budget and `beside` bytes more are more than the cgroup's limit or the machine's memory.
absl::Status CheckMachineHas(uint64_t budget, uint64_t beside, const std::string& root = "");

}  // namespace moed
