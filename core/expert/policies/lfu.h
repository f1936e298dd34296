// Least frequently used by the sequences that live now.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeLfuPolicy(const ExpertModelShape& context);
PartMemory LfuPolicyMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
