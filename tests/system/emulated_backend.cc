// The row "cuda-emulated" of the compute backends, where a program of the tests has it. MOED_EMULATED_DEVICE=discrete: on a
// device with memory of its own. MOED_EMULATED_LAUNCHES=N: after N launches it is lost.
#include <cstdlib>
#include <string_view>
#include <utility>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "tests/kernels/tested_backends.h"

namespace moed {

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaEmulated(Executor& executor);
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaEmulated(Executor& executor) {
  const char* const device = std::getenv("MOED_EMULATED_DEVICE");
  const bool discrete = device != nullptr && std::string_view(device) == "discrete";
  const emulation::RuntimeOptions options = {.watch = false,
                                             .attributes = discrete ? emulation::kDiscreteDevice : emulation::kUnifiedDevice};
  auto runtime = emulation::MakeEmulatedRuntime(options);
  if (const char* launches = std::getenv("MOED_EMULATED_LAUNCHES")) runtime->FailLaunch(std::atoi(launches));
  return MakeCudaBackend(kCudaEmulated, cuda::kEmulatedKernels, std::move(runtime), executor);
}

}  // namespace moed
