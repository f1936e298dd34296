// Sixteen floats in a 512-bit vector, for attention.h. Internal linkage, see there.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace moed {
namespace {

struct Lanes512 {
  using Floats = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kSums = 24;

  static inline Floats Load(const float* at) { return _mm512_loadu_ps(at); }
  static inline Floats Load(const uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static inline Floats Load(const int8_t* at) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
  }
  static inline Floats BroadcastHalf(uint16_t half) { return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half))); }
  static inline Floats Broadcast(float x) { return _mm512_set1_ps(x); }
  static inline Floats Zero() { return _mm512_setzero_ps(); }
  static inline void Store(float* at, Floats x) { _mm512_storeu_ps(at, x); }
  static inline void StoreHalves(uint16_t* at, Floats x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

  static inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static inline Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static inline Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static inline Floats Subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static inline Floats Divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  // The second where either is NaN.
  static inline Floats Least(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static inline Floats Largest(Floats a, Floats b) { return _mm512_max_ps(a, b); }

  // p * 2^n, rounded once.
  static inline Floats Scale(Floats p, Floats n, Floats, Floats) { return _mm512_scalef_ps(p, n); }

  // Eight partial sums of numbers that come sixteen at a time, number i into partial i mod 8.
  struct Partials {
    __m256 sum = _mm256_setzero_ps();
    inline void Add(const Floats (&x)[1]) {
      const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x[0]), 1));
      sum = _mm256_add_ps(_mm256_add_ps(sum, _mm512_castps512_ps256(x[0])), high);
    }
    inline void Store(float* eight) const { _mm256_storeu_ps(eight, sum); }
  };
};

}  // namespace
}  // namespace moed
