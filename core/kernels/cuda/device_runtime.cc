// Asks the CUDA runtime, which is linked statically and loads the driver itself, so that the program starts where neither is.
#include <cuda_runtime_api.h>

#include "core/base/status.h"
#include "core/kernels/cuda/device.h"

namespace moed {
namespace {

absl::Status Refused(cudaError_t error, const CudaVersions& versions) {
  return FailedPrecondition("no CUDA device: ", cudaGetErrorString(error), " (driver ", CudaVersion(versions.driver),
                            ", runtime ", CudaVersion(versions.runtime), ")");
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
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) return Refused(error, versions);
    devices.push_back({.name = properties.name,
                       .major = properties.major,
                       .minor = properties.minor,
                       .memory_bytes = properties.totalGlobalMem,
                       .unified_memory = properties.integrated != 0,
                       .versions = versions});
  }
  return devices;
}

}  // namespace moed
