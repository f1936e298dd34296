// Where a token's experts were when it came before, for several layers ahead.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

std::unique_ptr<ExpertPredictor> MakeTokenIdPredictor(const PartContext& context);
PartMemory TokenIdMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
