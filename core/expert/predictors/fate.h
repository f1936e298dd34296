// Fate's prefetch: cross-layer gate, as many experts as a layer's time allows, a prompt's by popularity (arXiv 2502.12224, 4.3).
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

// Beside the rule `fate`, what that takes of a prompt at the low precision is guessed at it; beside another rule nothing is
// lowered.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeFatePredictor(const PartContext& context, const PartOptions& options);
PartMemory FatePredictorMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
