// The compute backends of this build and what each asks of the machine.
#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#endif

#include "core/base/status.h"
#include "core/kernels/backend.h"
#include "core/kernels/cpu_backend.h"
#include "core/kernels/cuda_row.h"

namespace moed {
#ifdef MOED_CUDA_EMULATED
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaEmulated(Executor& executor);  // the tests' own
#endif
namespace {

template <const KernelTable& kKernels, const char* kName>
absl::StatusOr<std::unique_ptr<ComputeBackend>> Make(Executor& executor) {
  return MakeCpuBackend(kName, kKernels, executor);
}

template <const char* kName>
absl::Status NotThisProcessor() {
  return FailedPrecondition("this processor does not support the compute backend '", kName, "'");
}

constexpr char kScalar[] = "scalar";
constexpr std::string_view kCuda = "cuda";
#if defined(__x86_64__)
constexpr char kAvx2[] = "avx2";
constexpr char kAvxVnni[] = "avx-vnni";
constexpr char kAvx512Vnni[] = "avx512-vnni";
constexpr char kAmxInt8[] = "amx-int8";
#elif defined(__aarch64__)
constexpr char kNeonDotprod[] = "neon-dotprod";
constexpr char kNeonI8mm[] = "neon-i8mm";
#endif

#if defined(__x86_64__)
bool HasAvx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

// Some compilers' __builtin_cpu_supports does not know this one; the vectors' state is that of AVX2.
bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return HasAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

bool HasAvx512Vnni() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

bool HasAmxInt8() { return HasAvx512Vnni() && ProcessorHasAmxInt8() && AskForTiles() == 0; }

absl::Status AmxInt8Refusal() {
  if (!HasAvx512Vnni() || !ProcessorHasAmxInt8()) return NotThisProcessor<kAmxInt8>();
  return FailedPrecondition("Linux refuses this process the tiles of the compute backend '", kAmxInt8,
                            "': arch_prctl(ARCH_REQ_XCOMP_PERM): ", std::strerror(AskForTiles()));
}
#endif

constexpr ComputeBackendRow kComputeBackends[] = {
#ifdef MOED_CUDA_EMULATED
    {"cuda-emulated", [] { return true; }, [] { return absl::OkStatus(); }, MakeCudaEmulated},
#endif
    {kScalar, [] { return true; }, NotThisProcessor<kScalar>, Make<kScalarKernels, kScalar>},
#if defined(__x86_64__)
    {kAvx2, HasAvx2, NotThisProcessor<kAvx2>, Make<kAvx2Kernels, kAvx2>},
    {kAvxVnni, HasAvxVnni, NotThisProcessor<kAvxVnni>, Make<kAvxVnniKernels, kAvxVnni>},
    {kAvx512Vnni, HasAvx512Vnni, NotThisProcessor<kAvx512Vnni>, Make<kAvx512VnniKernels, kAvx512Vnni>},
    {kAmxInt8, HasAmxInt8, AmxInt8Refusal, Make<kAmxInt8Kernels, kAmxInt8>},
#elif defined(__aarch64__)
    {kNeonDotprod, HasNeonDotprod, NotThisProcessor<kNeonDotprod>, Make<kNeonDotprodKernels, kNeonDotprod>},
    {kNeonI8mm, HasNeonI8mm, NotThisProcessor<kNeonI8mm>, Make<kNeonI8mmKernels, kNeonI8mm>},
#endif
    {kCuda, [] { return CudaRefusal().ok(); }, [] { return CudaRefusal(); }, MakeNativeCudaBackend},
};

}  // namespace

std::span<const ComputeBackendRow> ComputeBackends() { return kComputeBackends; }

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeComputeBackend(std::string_view name, Executor& executor) {
  const ComputeBackendRow* chosen = nullptr;
  for (const ComputeBackendRow& row : kComputeBackends) {
    // A device is taken by name alone, as long as the daemon has not served with one.
    if (name == "auto" ? row.name != kCuda && row.supported() : row.name == name) chosen = &row;
  }
  if (chosen == nullptr) {
    return InvalidArgument("unknown compute backend '", name, "'; known: auto, ",
                           JoinNames(kComputeBackends, [](const ComputeBackendRow& row) { return row.name; }));
  }
  if (!chosen->supported()) return chosen->refusal();
  return chosen->make(executor);
}

}  // namespace moed
