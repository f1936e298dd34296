// The CUDA kernels in emulation, and at hand the device that they run on.
#pragma once

#include <memory>

#include "core/base/executor.h"
#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "tests/kernels/tested_backends.h"

namespace moed {

struct EmulatedBackend {
  explicit EmulatedBackend(const emulation::RuntimeOptions& options) {
    auto made = emulation::MakeEmulatedRuntime(options);
    device = made.get();
    backend = MakeCudaBackend(kCudaEmulated, cuda::kEmulatedKernels, std::move(made), executor).value();
  }

  InlineExecutor executor;
  emulation::EmulatedRuntime* device = nullptr;
  std::unique_ptr<ComputeBackend> backend;
};

}  // namespace moed
