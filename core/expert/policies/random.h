// Any evictable resident, each as likely as the others; the same ones in every run.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeRandomPolicy(const ExpertModelShape& context);

}  // namespace moed
