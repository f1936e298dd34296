// The experts that followed a token's last ones, as counted in a text or while serving (activation_path.h).
#pragma once

#include <memory>

#include "core/expert/predictors/predictor.h"

namespace moed {

// EdgeMoE (arXiv 2308.14352), section III-C.
std::unique_ptr<ExpertPredictor> MakeActivationPathPredictor(const PredictorContext& context);
// Fate's baseline (arXiv 2502.12224, section 5.1): the block before alone is the key.
std::unique_ptr<ExpertPredictor> MakeEapPredictor(const PredictorContext& context);

}  // namespace moed
