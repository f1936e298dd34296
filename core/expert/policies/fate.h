// Fate (arXiv 2502.12224), 4.4: the first layers whole, equal parts for the others, adaptive replacement inside a layer.
#pragma once

#include <memory>

#include "core/expert/fidelity/fate_plan.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

inline constexpr const OptionRow* kFatePolicyOptions[] = {&kFateShallowLayers, &kFatePlanOption};

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeFatePolicy(const PartContext& context, const PartOptions& options);
// `shallow_layers` from 0 on; more than there are means all.
std::unique_ptr<EvictionPolicy> MakeFatePolicy(const ExpertModelShape& context, int shallow_layers);

}  // namespace moed
