#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Least recently used, over all layers and sequences at once.
std::unique_ptr<EvictionPolicy> MakeLruPolicy(const ExpertModelShape& context);
// First in, first out: uses change nothing.
std::unique_ptr<EvictionPolicy> MakeFifoPolicy(const ExpertModelShape& context);

}  // namespace moed
