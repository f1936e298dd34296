// Least frequently used by the sequences that live now.
#pragma once

#include <memory>

#include "core/expert/policies/eviction_policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeLfuPolicy(const ExpertModelShape& context);

}  // namespace moed
