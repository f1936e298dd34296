// How much memory a conversation takes of this machine or container, and what for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/startup/config.h"
#include "server/startup/default_budget.h"

namespace moed {

struct RunBudget {
  uint64_t bytes = 0;
  std::string table;  // what it goes to, and why it is that much
  bool has_chat_template = false;
};

// `told`, or else what the machine gives. INVALID_ARGUMENT: more than the cgroup allows. `root` as in default_budget.h.
absl::StatusOr<DefaultBudget> ChooseBudget(std::optional<uint64_t> told, const std::string& root = "");

// Of serving `config.store` with `config`, whose budget is the machine's where it says none. ChooseBudget's errors;
// RESOURCE_EXHAUSTED: less than the model needs, with the least that works.
absl::StatusOr<RunBudget> PlanRun(const Config& config);

}  // namespace moed
