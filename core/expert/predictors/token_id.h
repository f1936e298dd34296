// Where a token's experts were when it came before, for several layers ahead.
#pragma once

#include <memory>

#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeTokenIdPredictor(const PredictorContext& context);

}  // namespace moed
