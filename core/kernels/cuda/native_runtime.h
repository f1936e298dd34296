// The first CUDA device, through the CUDA runtime.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {

// FAILED_PRECONDITION as FindCudaDevices (device.h) says it where there is none.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeCudaRuntime();

}  // namespace moed
