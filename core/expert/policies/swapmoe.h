// Who leaves for the virtual experts of SwapMoE (arXiv 2308.15030).
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/swapmoe/experts.h"

namespace moed {

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeSwapMoePolicy(const PartContext& context, const PartOptions& options);
std::unique_ptr<EvictionPolicy> MakeSwapMoePolicy(std::shared_ptr<SwapMoeExperts> experts);

}  // namespace moed
