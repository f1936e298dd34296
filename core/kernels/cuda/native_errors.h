// What the CUDA runtime says went wrong, as a status.
#pragma once

#include <driver_types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace moed {

// "no memory left (cudaErrorMemoryAllocation)", behind it what to do about it where something is known.
std::string CudaErrorText(cudaError_t error);

// "CUDA: <what>: <text>"; OK for cudaSuccess. RESOURCE_EXHAUSTED: memory. FAILED_PRECONDITION: what is wrong with the machine or
// its driver. INTERNAL: everything else.
absl::Status CudaStatus(cudaError_t error, std::string_view what);

}  // namespace moed
