// The row "cuda" of the backends' table: the first CUDA device of this machine, with the kernels that nvcc made.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/kernels/backend.h"
#include "core/kernels/cuda/runtime.h"
#include "core/kernels/cuda_kernel_set.h"

namespace moed {

// What nvcc made; null in builds without it.
const cuda::KernelSet* CompiledKernels();
// What OpenCudaDevice loads: all that those launch.
std::span<const Kernel> KernelsToLoad();
// The first device, where it runs the compiled kernels. FAILED_PRECONDITION with the reason and the remedy: no device, a driver
// or a device that is too old, no kernels for it. What the CUDA runtime says where it cannot be opened, or has no memory for the
// kernels, which are loaded. What is opened stays open.
absl::StatusOr<std::unique_ptr<DeviceRuntime>> OpenCudaDevice();

// What OpenCudaDevice says before it loads kernels, asked once for the process.
const absl::Status& CudaRefusal();
// What opening it or making its streams said.
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeNativeCudaBackend(Executor& executor);

}  // namespace moed
