// EdgeMoE (arXiv 2308.14352), III-C2: few uses and a layer that is far away make an expert leave.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Both start from the uses counted in the option `paths`, where it is given. INVALID_ARGUMENT: paths of another shape.
// Distance as the paper's prose means it: MoE layers from the current one on to the expert's.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEdgeMoePolicy(const PartContext& context, const PartOptions& options);
// Distance as the paper prints it: MoE layers from the expert's on to the current one.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEdgeMoePrintedPolicy(const PartContext& context, const PartOptions& options);

}  // namespace moed
