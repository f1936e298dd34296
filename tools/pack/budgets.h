// The memory budgets of the daemon, told before there is a store.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/serving/serving_plan.h"
#include "tools/pack/plan.h"

namespace moed {

// Of the store that `plan` makes, by the daemon's own plan with its default preset.
absl::StatusOr<ServingBudgets> FindServingBudgets(const PackPlan& plan, const ServingOptions& options);

// A line for each, with what it gives.
std::string BudgetTable(const PackPlan& plan, const ServingBudgets& budgets);

}  // namespace moed
