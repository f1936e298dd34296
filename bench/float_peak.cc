#include "bench/float_peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/clock.h"

namespace moed {
namespace {

constexpr int64_t kIterations = 20000;
constexpr int kPieces = 16;  // a thread

#if defined(__x86_64__)

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

#endif

double Rate(Executor& executor, void (*run)(), int products) {
  const int pieces = kPieces * executor.threads();
  const int64_t start = Clock::Real().NowNanos();
  executor.ParallelFor(pieces, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) run();
  });
  return static_cast<double>(pieces) * kIterations * products / SecondsBetween(start, Clock::Real().NowNanos());
}

}  // namespace

double FloatPeak(std::string_view backend, Executor& executor) {
#if defined(__x86_64__)
  if (backend == "avx512-vnni") return Rate(executor, Zmm, 16 * 16);
  if (backend == "avx2" || backend == "avx-vnni") return Rate(executor, Ymm, 12 * 8);
#endif
  (void)backend, (void)executor, (void)Rate;
  return 0;
}

}  // namespace moed
