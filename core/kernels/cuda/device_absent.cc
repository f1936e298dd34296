// For builds without the CUDA runtime (MOED_CUDA in cmake/Cuda.cmake).
#include "core/base/status.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/native_runtime.h"

namespace moed {

absl::StatusOr<std::vector<CudaDevice>> FindCudaDevices() {
  return FailedPrecondition("no CUDA device: this build is without CUDA; cmake -DMOED_CUDA=ON says what is missing");
}

absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeCudaRuntime(bool, std::span<const Kernel>) {
  return FindCudaDevices().status();
}

}  // namespace moed
