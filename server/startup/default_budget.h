// The memory budget when none is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace moed {

// What the process needs beside its budget.
inline constexpr uint64_t kBesideBudgetBytes = 64 << 20;

// The smallest memory limit of this process's cgroups (version 2 or 1, ancestors included): who takes more may be killed.
struct MemoryLimit {
  uint64_t bytes = 0;
  std::string path;
};
// `root` stands before every path ("" on a real machine).
std::optional<MemoryLimit> FindMemoryLimit(const std::string& root = "");

struct DefaultBudget {
  uint64_t bytes = 0;
  std::string reason;  // "98 % of the cgroup's limit of 4.0 GiB (/sys/fs/cgroup/x/memory.max), less 64.0 MiB"
};

// From that limit or the machine's available memory, whichever is less. `others`: what programs beside the daemon need. NOT_FOUND
// when none can be read.
absl::StatusOr<DefaultBudget> FindDefaultBudget(const std::string& root = "", uint64_t others = 0);

}  // namespace moed
