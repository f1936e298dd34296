// The experts that followed a token's last ones, as counted in a text or while serving (activation_path.h).
#pragma once

#include <memory>

#include "core/expert/learning/paths_option.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

// EdgeMoE (arXiv 2308.14352), section III-C. INVALID_ARGUMENT: paths of another shape.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeActivationPathPredictor(const PartContext& context,
                                                                             const PartOptions& options);
// Fate's baseline (arXiv 2502.12224, section 5.1): the block before alone is the key.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeEapPredictor(const PartContext& context, const PartOptions& options);
PartMemory PathPredictorMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
