// Least frequently used by the sequences that live now.
#pragma once

#include <memory>

#include "core/expert/policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeLfuPolicy(const PolicyContext& context);

}  // namespace moed
