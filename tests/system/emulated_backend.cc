// The row "cuda-emulated" of the compute backends, where a program of the tests has it.
#include "tests/kernels/tested_backends.h"

namespace moed {

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaEmulated(Executor& executor);
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaEmulated(Executor& executor) {
  return MakeTestedBackend(kCudaEmulated, executor);
}

}  // namespace moed
