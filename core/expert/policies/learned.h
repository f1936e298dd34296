#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Evicts the expert whose next use is expected last (next_use.h), its layer's place in the token counted in.
std::unique_ptr<EvictionPolicy> MakeLearnedPolicy(const ExpertModelShape& context);
PartMemory LearnedPolicyMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
