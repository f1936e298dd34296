// Answers choose among residents alone (SwapMoE, arXiv 2308.15030, 3.2).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/swapmoe/experts.h"

namespace moed {

absl::StatusOr<std::unique_ptr<RouterMask>> MakeSwapMoeMask(const PartContext& context, const PartOptions& options);
std::unique_ptr<RouterMask> MakeSwapMoeMask(std::shared_ptr<SwapMoeExperts> experts, int experts_per_layer);
// With what it shares with the predictor and the policy.
PartMemory SwapMoeMaskMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
