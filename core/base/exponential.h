// e^x by one polynomial with every rounding fixed: the same bits on every machine, where libraries' own differ. In double without
// fused multiply-adds, for code of every processor; kernels/math.h has the float form that vectors compute. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace moed {

// Within 1 ulp; x in [-87, 88].
constexpr float Exponential(float x) {
  // x = n ln 2 + r, |r| <= ln(2) / 2: adding the shift rounds x / ln 2 to n and leaves n in the low bits.
  constexpr double kShift = 0x1.8p52;
  const double shifted = x * 0x1.71547652b82fep+0 + kShift;
  const double r = x - (shifted - kShift) * 0x1.62e42fefa39efp-1;
  constexpr double kTaylor[] = {1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0};
  double power = 0;
  for (const double coefficient : kTaylor) power = power * r + coefficient;
  const uint64_t two_to_n = (std::bit_cast<uint64_t>(shifted) << 52) + std::bit_cast<uint64_t>(1.0);
  return static_cast<float>(power * std::bit_cast<double>(two_to_n));
}

}  // namespace moed
