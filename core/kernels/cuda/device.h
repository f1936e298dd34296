// The CUDA devices of this machine. They are only named: there are no CUDA kernels yet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

struct CudaVersions {
  int driver = 0;  // 12060 is 12.6
  int runtime = 0;
};
struct CudaDevice {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  uint64_t memory_bytes = 0;
  bool unified_memory = false;  // its memory is the processor's (Jetson)
  CudaVersions versions;
};

// At least one, or FAILED_PRECONDITION "no CUDA device: <why>". Where there is a driver, what it maps and starts stays in the
// process for good: not for one that goes on to keep a memory budget.
absl::StatusOr<std::vector<CudaDevice>> FindCudaDevices();

// "Orin (compute capability 8.7, 30.0 GiB of unified memory, driver 12.6, runtime 12.6)", joined by commas.
std::string Describe(std::span<const CudaDevice> devices);

// 12060 is "12.6", 0 is "none".
std::string CudaVersion(int version);

// Why nothing computes with CUDA: no device, or no kernels for the one that is there. Never OK.
absl::Status CudaRefusal();

}  // namespace moed
