// Guesses nothing.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeNoPredictor(const PartContext& context);

}  // namespace moed
