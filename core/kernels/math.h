// Elementary functions with every rounding fixed, so that a vector version gives the same bits. Pure.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/kernels/constants.h"

namespace moed {

// 2^n as a float, -126 <= n <= 127.
MOED_DEVICE inline float PowerOfTwo(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }

// Within 1 ulp. NaN stays NaN; gradual underflow.
MOED_DEVICE inline float Exp(float x) {
  x = kExpHighest < x ? kExpHighest : x;
  x = kExpLowest > x ? kExpLowest : x;
  const float shifted = std::fma(x, kLog2E, kRoundFloat);
  const float n = shifted - kRoundFloat;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float p = kExp[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, r, kExp[i]);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // In two factors, since 2^n itself may be no float.
  const int32_t exponent = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRoundFloat));
  const int32_t half = exponent >> 1;
  return p * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

MOED_DEVICE inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
MOED_DEVICE inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

MOED_DEVICE inline float Gelu(float x) { return x / (1.0f + Exp(-(x * std::fma(kGelu[1], x * x, kGelu[0])))); }

// Within 2 ulp.
MOED_DEVICE inline float Tanh(float x) {
  const float square = x * x;
  float p = kTanh[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, square, kTanh[i]);
  const float magnitude = std::fabs(x);
  const float large = 1.0f - 2.0f / (Exp(magnitude + magnitude) + 1.0f);
  return magnitude < kTanhBorder ? std::fma(p * square, x, x) : std::copysign(large, x);
}

// log(1 + exp(x)) = max(x, 0) + 2 artanh(s), s = e / (2 + e), e = exp(-|x|): s is at most 1/3. Within 1 ulp.
MOED_DEVICE inline float Softplus(float x) {
  const double e = Exp(-std::fabs(x));
  const double s = e / (2.0 + e);
  const double square = s * s;
  double p = kArtanh[8];
  for (int i = 7; i >= 0; --i) p = p * square + kArtanh[i];
  const double logarithm = 2.0 * (s * square * p + s);
  return static_cast<float>(x < 0 ? logarithm : x + logarithm);
}

struct SinCos {
  float sin;
  float cos;
};

// Within 1 ulp of float32 for |angle| up to 1e6.
MOED_DEVICE inline SinCos SineCosine(float angle) {
  const double x = angle;
  const double shifted = x * kTwoOverPi + kRoundDouble;
  const double n = shifted - kRoundDouble;
  const double r = ((x - n * kHalfPi[0]) - n * kHalfPi[1]) - n * kHalfPi[2];
  const double square = r * r;
  double s = kSin[5];
  for (int i = 4; i >= 0; --i) s = s * square + kSin[i];
  s = s * square * r + r;
  double c = kCos[6];
  for (int i = 5; i >= 0; --i) c = c * square + kCos[i];
  c = c * square + 1.0;
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted);
  const double sine = quadrant & 1 ? c : s;
  const double cosine = quadrant & 1 ? s : c;
  return {static_cast<float>(quadrant & 2 ? -sine : sine), static_cast<float>((quadrant + 1) & 2 ? -cosine : cosine)};
}

}  // namespace moed
