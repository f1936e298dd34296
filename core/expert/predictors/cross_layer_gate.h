// The gate input of one MoE layer, seen through the gate of the next (Fate, section 4.2).
#pragma once

#include <memory>

#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeCrossLayerGatePredictor(const PredictorContext& context);

}  // namespace moed
