#include "core/kernels/cuda_row.h"

#include <span>
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
std::span<const Kernel> ToLoad() { return cuda::KernelsToLoad(); }
#else
constexpr std::string_view kArchitectures;  // which no device runs
constexpr const cuda::KernelSet* kKernels = nullptr;
std::span<const Kernel> ToLoad() { return {}; }
#endif

absl::StatusOr<std::unique_ptr<DeviceRuntime>> OpenFirst(std::span<const Kernel> loaded) {
  MOED_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, FindCudaDevices());
  MOED_RETURN_IF_ERROR(CheckKernelsRunOn(devices.front(), kArchitectures));
  return MakeCudaRuntime(KernelsJoinLaunches(devices.front(), kArchitectures), loaded);
}

}  // namespace

const cuda::KernelSet* CompiledKernels() { return kKernels; }
std::span<const Kernel> KernelsToLoad() { return ToLoad(); }

absl::StatusOr<std::unique_ptr<DeviceRuntime>> OpenCudaDevice() { return OpenFirst(KernelsToLoad()); }

const absl::Status& CudaRefusal() {
  static const absl::Status refusal = OpenFirst({}).status();
  return refusal;
}

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeNativeCudaBackend(Executor& executor) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<DeviceRuntime> runtime, OpenCudaDevice());
  return MakeCudaBackend("cuda", *kKernels, std::move(runtime), executor);
}

}  // namespace moed
