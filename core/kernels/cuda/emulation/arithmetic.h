// CUDA's intrinsics on numbers, as far as kernels use them.
#pragma once

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace moed {
inline namespace emulated {

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// To the nearest, ties to even. What no int holds becomes the nearest int that there is, a NaN 0.
inline int __float2int_rn(float x) {
  if (std::isnan(x)) return 0;
  const float rounded = std::nearbyint(x);
  if (rounded >= 0x1p31f) return INT32_MAX;
  if (rounded < -0x1p31f) return INT32_MIN;
  return static_cast<int>(rounded);
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

// Byte i of the result is byte (selector >> 4 i) & 7 of the eight of y (4 to 7) and x (0 to 3).
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}

// The same, but the byte's sign, eight times.
template <unsigned kSelector>
unsigned SignsOfBytes(unsigned x, unsigned y) {
  return (__byte_perm(x, y, kSelector) >> 7 & 0x01010101) * 0xff;
}

// c plus the scalar product of four bytes, modulo 2^32.
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i) sum += static_cast<unsigned>(static_cast<int8_t>(a >> 8 * i) * static_cast<int8_t>(b >> 8 * i));
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 0xff) * (b >> 8 * i & 0xff);
  return c;
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using Number = std::common_type_t<A, B>;
  return static_cast<Number>(b) < static_cast<Number>(a) ? static_cast<Number>(b) : static_cast<Number>(a);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using Number = std::common_type_t<A, B>;
  return static_cast<Number>(a) < static_cast<Number>(b) ? static_cast<Number>(b) : static_cast<Number>(a);
}

}  // namespace emulated
}  // namespace moed
