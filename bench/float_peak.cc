#include "bench/float_peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace moed {
namespace {

#if defined(__x86_64__)

constexpr int64_t kIterations = 20000;
constexpr int kPieces = 16;  // a thread

// As many independent sums as hide how long one multiply-add takes.
#define MOED_MULTIPLY_ADDS(name, instructions, Vector, Zero, MultiplyAdd, kSums, constraint) \
  __attribute__((target(instructions))) void name() {                                        \
    Vector w = Zero(), x = Zero(), sums[kSums];                                              \
    for (Vector & sum : sums) sum = Zero();                                                  \
    for (int64_t i = 0; i < kIterations; ++i) {                                              \
      asm volatile("" : "+" constraint(w), "+" constraint(x));                               \
      _Pragma("GCC unroll 16") for (Vector & sum : sums) sum = MultiplyAdd(w, x, sum);       \
    }                                                                                        \
    for (Vector & sum : sums) asm volatile("" : : constraint(sum));                          \
  }
MOED_MULTIPLY_ADDS(Ymm, "avx2,fma", __m256, _mm256_setzero_ps, _mm256_fmadd_ps, 12, "x")
MOED_MULTIPLY_ADDS(Zmm, "avx512f", __m512, _mm512_setzero_ps, _mm512_fmadd_ps, 16, "v")
#undef MOED_MULTIPLY_ADDS

double Run(Executor& executor, void (*run)(), int products) {
  const int pieces = kPieces * executor.threads();
  executor.ParallelFor(pieces, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) run();
  });
  return static_cast<double>(pieces) * kIterations * products;
}

#endif

}  // namespace

double RunMultiplyAdds([[maybe_unused]] std::string_view backend, [[maybe_unused]] Executor& executor) {
#if defined(__x86_64__)
  if (backend == "avx512-vnni" || backend == "amx-int8") return Run(executor, Zmm, 16 * 16);
  if (backend == "avx2" || backend == "avx-vnni") return Run(executor, Ymm, 12 * 8);
#endif
  return 0;
}

}  // namespace moed
