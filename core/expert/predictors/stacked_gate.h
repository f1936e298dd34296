// This layer's gate input through the gates of the next layers (HOBBIT, arXiv 2411.01433, section 3.3).
#pragma once

#include <memory>

#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeStackedGatePredictor(const PredictorContext& context);

}  // namespace moed
