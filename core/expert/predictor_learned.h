#pragma once

#include <memory>

#include "core/expert/predictor.h"

namespace moed {

// Experts of the next layer, with probabilities that are learned to be true: from the next layer's gate applied to this layer's
// input, and from what the token's routing was when it came before.
std::unique_ptr<ExpertPredictor> MakeLearnedPredictor(const PredictorContext& context);

}  // namespace moed
