// Least recently used, over all layers and sequences at once.
#pragma once

#include <memory>

#include "core/expert/policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeLruPolicy(const PolicyContext& context);

}  // namespace moed
