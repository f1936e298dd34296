#pragma once

#include <memory>

#include "core/expert/policy.h"

namespace moed {

// Least recently used, over all layers and sequences at once.
std::unique_ptr<EvictionPolicy> MakeLruPolicy(const PolicyContext& context);
// First in, first out: uses change nothing.
std::unique_ptr<EvictionPolicy> MakeFifoPolicy(const PolicyContext& context);

}  // namespace moed
