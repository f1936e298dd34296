// Asks the CUDA runtime, which is linked statically and loads the driver itself, so that the program starts where neither is.
#include <cuda_runtime_api.h>

#include "core/base/status.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/native_errors.h"

namespace moed {
namespace {

absl::Status Refused(cudaError_t error, const CudaVersions& versions) {
  const std::string known = StrCat(" (driver ", CudaVersion(versions.driver), ", runtime ", CudaVersion(versions.runtime), ")");
  if (versions.driver == 0 && error == cudaErrorInsufficientDriver) {
    return FailedPrecondition("no CUDA device: there is no NVIDIA driver", known,
                              "; install one, or give the container the host's (--gpus all, --runtime nvidia)");
  }
  return FailedPrecondition("no CUDA device: ", CudaErrorText(error), known);
}

absl::StatusOr<CudaDevice> DeviceAt(int index, const CudaVersions& versions) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return Refused(error, versions);
  return CudaDevice{.name = properties.name,
                    .major = properties.major,
                    .minor = properties.minor,
                    .memory_bytes = properties.totalGlobalMem,
                    .unified_memory = properties.integrated != 0,
                    .pageable_memory = properties.pageableMemoryAccess != 0,
                    .versions = versions};
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> FindCudaDevices() {
  CudaVersions versions;
  cudaDriverGetVersion(&versions.driver);
  cudaRuntimeGetVersion(&versions.runtime);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return Refused(error, versions);
  if (count == 0) return Refused(cudaErrorNoDevice, versions);
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    MOED_ASSIGN_OR_RETURN(CudaDevice device, DeviceAt(i, versions));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace moed
