// The gate input of one MoE layer, seen through the gate of the next (Fate, section 4.2).
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeCrossLayerGatePredictor(const PartContext& context);
PartMemory CrossLayerGateMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
