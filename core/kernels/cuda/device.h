// The CUDA devices of this machine, and what kernels need of one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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
  bool unified_memory = false;   // its memory is the processor's (Jetson)
  bool pageable_memory = false;  // it reads and writes all memory of this process, not only what its driver gave
  CudaVersions versions;
};

// At least one, or FAILED_PRECONDITION "no CUDA device: <why>; <remedy>". Where there is a driver, what it maps and starts stays
// in the process for good: not for one that goes on to keep a memory budget.
absl::StatusOr<std::vector<CudaDevice>> FindCudaDevices();

// "Orin (compute capability 8.7, 30.0 GiB of unified memory, driver 12.6, runtime 12.6)", joined by commas.
std::string Describe(std::span<const CudaDevice> devices);

// 12060 is "12.6", 0 is "none".
std::string CudaVersion(int version);

// Whether kernels that were compiled for `architectures` ("87-real,90", from MOED_CUDA_ARCHITECTURES of CMake; "": there are
// none) run on the device, or FAILED_PRECONDITION with the device, the reason and the remedy.
absl::Status CheckKernelsRunOn(const CudaDevice& device, std::string_view architectures);

// Whether those of them that run on the device wait in JoinLaunches (language.h) for the launches before.
bool KernelsJoinLaunches(const CudaDevice& device, std::string_view architectures);

}  // namespace moed
