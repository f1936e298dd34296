// Fate (arXiv 2502.12224), 4.4: the first layers whole, equal parts for the others, adaptive replacement inside a layer.
#pragma once

#include <memory>

#include "core/expert/policies/eviction_policy.h"

namespace moed {

// The paper's boundary for Qwen1.5-MoE.
inline constexpr int kFateShallowLayers = 3;

std::unique_ptr<EvictionPolicy> MakeFatePolicy(const ExpertModelShape& context);
// `shallow_layers` from 0 on; more than there are means all.
std::unique_ptr<EvictionPolicy> MakeFatePolicy(const ExpertModelShape& context, int shallow_layers);

}  // namespace moed
