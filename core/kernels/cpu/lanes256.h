// Eight floats in a 256-bit vector, for attention.h. Internal linkage, see there.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace moed {
namespace {

struct Lanes256 {
  using Floats = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kSums = 12;  // vectors that registers hold beside the operands of a multiply-add

  static inline Floats Load(const float* at) { return _mm256_loadu_ps(at); }
  static inline Floats Load(const uint16_t* at) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))); }
  static inline Floats Load(const int8_t* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
  }
  static inline Floats BroadcastHalf(uint16_t half) { return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half))); }
  static inline Floats Broadcast(float x) { return _mm256_set1_ps(x); }
  static inline Floats Zero() { return _mm256_setzero_ps(); }
  static inline void Store(float* at, Floats x) { _mm256_storeu_ps(at, x); }
  static inline void StoreHalves(uint16_t* at, Floats x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

  static inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static inline Floats Multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static inline Floats Add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static inline Floats Subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static inline Floats Divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  // The second where either is NaN.
  static inline Floats Least(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static inline Floats Largest(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  // NaN becomes the one quiet NaN of its sign.
  static inline Floats PlainNan(Floats x) {
    const Floats plain =
        _mm256_or_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
    return _mm256_blendv_ps(x, plain, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }

  // p * 2^n, |n| <= 151 a whole number, rounded once; `shifted` = n + kRoundFloat.
  static inline Floats Scale(Floats p, Floats, Floats shifted, Floats round) {
    const __m256i exponent = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
    const __m256i half = _mm256_srai_epi32(exponent, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(exponent, half)));
  }

  // Eight partial sums of numbers that come sixteen at a time, number i into partial i mod 8.
  struct Partials {
    __m256 sum = _mm256_setzero_ps();
    inline void Add(const Floats (&x)[2]) { sum = _mm256_add_ps(_mm256_add_ps(sum, x[0]), x[1]); }
    inline void Store(float* eight) const { _mm256_storeu_ps(eight, sum); }
  };

 private:
  static inline Floats PowerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace
}  // namespace moed
