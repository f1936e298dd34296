// The first CUDA device, through the CUDA runtime.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {

// Opens the device, for good: its context stays with the process. `joins_launches`: its kernels wait in JoinLaunches
// (KernelsJoinLaunches), so those of a graph may come while the ones before end. `kernels` are
// loaded, so that their first launch takes no memory. FAILED_PRECONDITION as FindCudaDevices
// (device.h) says it where there is none; else what the CUDA runtime says (native_errors.h).
absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeCudaRuntime(bool joins_launches, std::span<const Kernel> kernels);

}  // namespace moed
