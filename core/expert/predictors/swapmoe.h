// The loads that SwapMoE (arXiv 2308.15030, 3.3) has due.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/swapmoe/experts.h"

namespace moed {

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeSwapMoePredictor(const PartContext& context, const PartOptions& options);
std::unique_ptr<ExpertPredictor> MakeSwapMoePredictor(std::shared_ptr<SwapMoeExperts> experts);

}  // namespace moed
