// Fate's prefetch: cross-layer gate, as many experts as a layer's time allows, a prompt's by popularity (arXiv 2502.12224, 4.3).
#pragma once

#include <memory>

#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeFatePredictor(const PredictorContext& context);

}  // namespace moed
