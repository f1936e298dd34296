// The compute backends that tests iterate: those of this build, and "cuda-emulated", the CUDA kernels in emulation.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/kernels/backend.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "core/kernels/cuda_row.h"

namespace moed {

inline constexpr std::string_view kCudaEmulated = "cuda-emulated";

// Whether the CUDA device reads what tests keep in memory of their own.
inline bool CudaReadsAnyMemory() {
  const auto devices = FindCudaDevices();
  return devices.ok() && devices->front().pageable_memory && CudaRefusal().ok();
}

// Of this build, those that run on this machine's memory.
inline std::vector<std::string_view> BackendNames() {
  std::vector<std::string_view> names;
  for (const ComputeBackendRow& row : ComputeBackends()) {
    if (row.name != "cuda" || CudaReadsAnyMemory()) names.push_back(row.name);
  }
  return names;
}

inline std::vector<std::string_view> TestedBackends() {
  std::vector<std::string_view> names = BackendNames();
  names.push_back(kCudaEmulated);
  return names;
}

// Its kernels run when it waits for them, and no access is checked, so that it is fast and reads any memory.
inline absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeTestedBackend(std::string_view name, Executor& executor) {
  if (name != kCudaEmulated) return MakeComputeBackend(name, executor);
  return MakeCudaBackend(name, cuda::kEmulatedKernels,
                         emulation::MakeEmulatedRuntime({.watch = false, .attributes = emulation::kUnifiedDevice}), executor);
}

}  // namespace moed
