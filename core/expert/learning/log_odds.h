// Probabilities and their log odds: what every learned weight of the experts' routing goes through. Plain arithmetic without
// branches, so that compilers compute several experts at once, and with the same bits on every machine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace moed {

// Of a normal number above 0; off by less than 1e-6 (1 + |result|). The number is m 2^e with m in [2/3, 4/3), log(m) a
// polynomial.
inline float FastLog(float x) {
  constexpr int32_t kTwoThirds = 0x3f2aaaab;
  constexpr float kLn2 = 0.69314718f;
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t e = (bits - kTwoThirds) >> 23;
  const float f = std::bit_cast<float>(bits - (e << 23)) - 1;
  const float q = -0.500022f + f * (0.33335128f + f * (-0.24843183f + f * (0.19865002f + f * (-0.19396697f + f * 0.16687603f))));
  return static_cast<float>(e) * kLn2 + (f + f * f * q);
}

// To a relative error below 1e-5; beyond |x| = 80 that of 80. Two to the nearest whole power, times a polynomial of the rest.
inline float FastExp(float x) {
  constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;
  constexpr float kRounds = 12582912;  // adding it leaves the nearest whole number in the low bits
  x = x < -80 ? -80 : x > 80 ? 80 : x;
  const float shifted = x * kLog2e + kRounds;
  const float r = x - (shifted - kRounds) * kLn2;
  const int32_t power = std::bit_cast<int32_t>(shifted) << 23;
  const float rest = 1 + (r + r * r * (0.4999912f + r * (0.16666517f + r * (0.0419008f + r * 0.0083691543f))));
  return std::bit_cast<float>(std::bit_cast<int32_t>(rest) + power);
}

// The probability that has these log odds.
inline float Logistic(float log_odds) { return 1 / (1 + FastExp(-log_odds)); }

// Of a probability, which counts as no less than `least` and no more than 1 - `least`.
inline float LogOdds(float p, float least) {
  p = std::min(std::max(p, least), 1 - least);
  return FastLog(p / (1 - p));
}

}  // namespace moed
