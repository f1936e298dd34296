// This layer's gate input through the gates of the next layers (HOBBIT, arXiv 2411.01433, section 3.3).
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

inline constexpr OptionRow kStackedGateLayers = Whole(
    {"stacked-gate-layers", "p: layers ahead whose gates are asked", "3", 1, 64, "layers", "HOBBIT, arXiv 2411.01433, 3.3"});
inline constexpr const OptionRow* kStackedGateOptions[] = {&kStackedGateLayers};

// What the rule `hobbit` does with an expert that is wanted, this does with one that is guessed; beside another rule nothing is
// lowered or left out.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeStackedGatePredictor(const PartContext& context, const PartOptions& options);
PartMemory StackedGateMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
