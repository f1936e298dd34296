// Products of matrices by cuBLAS, which is loaded when it is asked for: it is hundreds of megabytes, and programs start without.
#pragma once

#include <driver_types.h>

#include <memory>

#include "absl/status/statusor.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {

// Thread contract: one call at a time.
class NativeMatmul {
 public:
  virtual ~NativeMatmul() = default;
  // Enqueues it. INTERNAL: what cuBLAS says.
  virtual absl::Status Multiply(const HalfProduct& product, cudaStream_t stream) = 0;
};

// FAILED_PRECONDITION: there is no such library, or it does not open, with its name and the remedy; or this build was made
// without cuBLAS's headers. The device is open.
absl::StatusOr<std::unique_ptr<NativeMatmul>> OpenCublas();

}  // namespace moed
