// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1), over all layers and
// sequences.
#pragma once

#include <memory>

#include "core/expert/part_context.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

std::unique_ptr<EvictionPolicy> MakeS3FifoPolicy(const ExpertModelShape& context);

}  // namespace moed
