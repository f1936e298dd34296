#include "core/kernels/cuda/device.h"

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed {

std::string CudaVersion(int version) { return version == 0 ? "none" : StrCat(version / 1000, ".", version % 1000 / 10); }

std::string Describe(std::span<const CudaDevice> devices) {
  return JoinNames(devices, [](const CudaDevice& device) {
    return absl::StrFormat("%s (compute capability %d.%d, %.1f GiB of %s memory, driver %s, runtime %s)", device.name,
                           device.major, device.minor, static_cast<double>(device.memory_bytes) / (1 << 30),
                           device.unified_memory ? "unified" : "its own", CudaVersion(device.versions.driver),
                           CudaVersion(device.versions.runtime));
  });
}

absl::Status CudaRefusal() {
  MOED_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, FindCudaDevices());
  return FailedPrecondition("no CUDA kernels in this version, which computes on the processor; there is ", Describe(devices));
}

}  // namespace moed
