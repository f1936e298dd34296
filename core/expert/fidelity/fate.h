// Fate, arXiv 2502.12224, 4.5 and 5.3: popularity-aware hybrid precision in a prompt, low precision for unforeseen misses of an
// answer where the link is slow.
#pragma once

#include <memory>

#include "core/expert/fidelity/fate_plan.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

inline constexpr const OptionRow* kFateRuleOptions[] = {&kFatePrefillLow, &kFatePlanOption};
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFateRule(const PartContext& context, const PartOptions& options);

}  // namespace moed
