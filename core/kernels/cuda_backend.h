// Computes through a device: operations become launches on one stream. All memory has the same addresses for the host and for
// kernels; what the host reads is pinned (cuda_memory.h).
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/kernels/backend.h"
#include "core/kernels/cuda/runtime.h"
#include "core/kernels/cuda_kernel_set.h"

namespace moed {

// `kernels` are those that `runtime` can launch. The executor must outlive the backend.
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaBackend(std::string_view name, const cuda::KernelSet& kernels,
                                                                std::unique_ptr<DeviceRuntime> runtime, Executor& executor);

}  // namespace moed
