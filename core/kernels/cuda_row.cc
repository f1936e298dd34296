#include "core/kernels/cuda_row.h"

#include <utility>

#include "core/base/status.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/native_runtime.h"
#include "core/kernels/cuda_backend.h"

namespace moed {
namespace {

#ifdef MOED_CUDA_KERNELS
constexpr std::string_view kArchitectures = MOED_CUDA_KERNELS;
constexpr const cuda::KernelSet* kKernels = &cuda::kCompiledKernels;
#else
constexpr std::string_view kArchitectures;  // which no device runs
constexpr const cuda::KernelSet* kKernels = nullptr;
#endif

}  // namespace

const cuda::KernelSet* CompiledKernels() { return kKernels; }

absl::StatusOr<std::unique_ptr<DeviceRuntime>> OpenCudaDevice() {
  MOED_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, FindCudaDevices());
  MOED_RETURN_IF_ERROR(CheckKernelsRunOn(devices.front(), kArchitectures));
  return MakeCudaRuntime(KernelsJoinLaunches(devices.front(), kArchitectures));
}

const absl::Status& CudaRefusal() {
  static const absl::Status refusal = OpenCudaDevice().status();
  return refusal;
}

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeNativeCudaBackend(Executor& executor) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<DeviceRuntime> runtime, OpenCudaDevice());
  return MakeCudaBackend("cuda", *kKernels, std::move(runtime), executor);
}

}  // namespace moed
