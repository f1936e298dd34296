// What a model will be like in some memory budgets: their plans, and the speed that is expected of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/machine/memory_read.h"
#include "core/serving/serving_plan.h"
#include "server/plan/decode_speed.h"
#include "server/plan/planned_model.h"
#include "server/plan/token_products.h"

namespace moed {

// What this machine does with the model.
struct MachineSpeed {
  MemoryBandwidth memory;
  double product_seconds = 0;  // of one token
  std::string kernels;
  DiskRead disk;
  std::string disk_backend;  // "buffered": the page cache may have been measured

  double KernelShare(const TokenBytes& token) const;  // of the memory's bandwidth
};
struct MeasureLimits {
  int threads = 1;
  uint64_t memory_bytes = 0;  // at once
  double seconds = 1;         // of the kernels, and of the disk
};
// Reads model.weights and writes nothing.
absl::StatusOr<MachineSpeed> MeasureMachine(const PlannedModel& model, const MeasureLimits& limits, const Clock& clock);

struct BudgetOutlook {
  std::string_view name;  // "smallest", "comfortable", "given", "default", or ""
  MemoryPlan memory;
  double expert_share = 0;  // of the experts' bytes that the cache holds
  DecodeSpeed expected;     // with DemoRouting
  DecodeSpeed slowest;      // with UniformRouting
  DecodeSpeed fastest;      // with GptOssRouting
};

struct Outlook {
  ServingBudgets budgets;
  BudgetOutlook chosen;               // the budget that was given, or what the daemon takes by default
  std::vector<BudgetOutlook> others;  // ascending; the smallest first, the comfortable last
};

// RESOURCE_EXHAUSTED where `chosen_budget` is too small, as PlanServing.
absl::StatusOr<Outlook> LookAhead(const PlannedModel& model, const MachineSpeed& machine, uint64_t chosen_budget, bool given,
                                  const ServingOptions& options);

}  // namespace moed
