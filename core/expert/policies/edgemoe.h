// EdgeMoE (arXiv 2308.14352), III-C2: few uses and a layer that is far away make an expert leave.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Distance as the paper's prose means it: MoE layers from the current one on to the expert's.
std::unique_ptr<EvictionPolicy> MakeEdgeMoePolicy(const ExpertModelShape& context);
// Distance as the paper prints it: MoE layers from the expert's on to the current one.
std::unique_ptr<EvictionPolicy> MakeEdgeMoePrintedPolicy(const ExpertModelShape& context);

}  // namespace moed
