// Adaptive replacement cache (arc_lists.h) over all layers and sequences at once.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeArcPolicy(const ExpertModelShape& context);

}  // namespace moed
