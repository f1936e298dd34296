#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

// Experts of the layers ahead, with probabilities that are learned to be true: from the token and its sequence's past
// (route_prior.h) for every layer that is still to come, for the next one also from the experts of this layer and from the next
// layer's gate applied to this layer's input. Without a gate the rest has to do.
std::unique_ptr<ExpertPredictor> MakeLearnedPredictor(const PartContext& context);
PartMemory LearnedPredictorMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
