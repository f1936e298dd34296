// Every expert at one precision, whatever is resident.
#pragma once

#include <memory>

#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeExactRule(const PartContext& context, const PartOptions& options);
// At the store's last one: the quantised baselines of EdgeMoE, IV-A.
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeLowestRule(const PartContext& context, const PartOptions& options);

}  // namespace moed
