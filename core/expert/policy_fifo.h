// First in, first out: uses change nothing.
#pragma once

#include <memory>

#include "core/expert/policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeFifoPolicy(const PolicyContext& context);

}  // namespace moed
