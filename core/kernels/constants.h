// Numbers that the scalar definition and every instruction set share. Plain data only: files compiled for one instruction set
// include this.
#pragma once

#include "core/base/device_code.h"

namespace moed {

// exp(x) = 2^n * p(r), n = round(x / ln 2), r = x - n ln 2 in two steps, p(r) = 1 + r + r^2 (kExp[0] + kExp[1] r + ...).
inline constexpr float kExpHighest = 89.0f;   // above: infinity
inline constexpr float kExpLowest = -104.0f;  // below: zero
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // few bits: n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
MOED_TABLE float kExp[] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23d4p-10f};

// Adding it rounds to an integer, ties to even, and leaves that integer in the low bits (two's complement).
inline constexpr float kRoundFloat = 0x1.8p23f;
inline constexpr double kRoundDouble = 0x1.8p52;

// Angles: n = round(x 2/pi), r = x - n pi/2 in three steps, of which the first two products are exact for |n| < 2^20.
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
MOED_TABLE double kHalfPi[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
// sin(r) = r + r^3 (kSin[0] + kSin[1] r^2 + ...), cos(r) = 1 + r^2 (kCos[0] + kCos[1] r^2 + ...), |r| <= pi/4.
MOED_TABLE double kSin[] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800};
MOED_TABLE double kCos[] = {-1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200};

// artanh(s) = s + s^3 (kArtanh[0] + kArtanh[1] s^2 + ...), |s| <= 1/3.
MOED_TABLE double kArtanh[] = {1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19};

// gelu(x) = x * sigmoid(x (kGelu[0] + kGelu[1] x^2)), its tanh form: 2 sqrt(2 / pi), and 0.044715 times that.
MOED_TABLE float kGelu[] = {0x1.988454p+0f, 0x1.2444f2p-4f};

// tanh(x) = x + x^3 (kTanh[0] + kTanh[1] x^2 + ...), |x| < kTanhBorder.
inline constexpr float kTanhBorder = 0.625f;
MOED_TABLE float kTanh[] = {-0x1.555532p-2f, 0x1.110726p-3f, -0x1.b83c5ap-5f, 0x1.52269cp-6f, -0x1.75e1d4p-8f};

// Activations whose block maximum is smaller than this quantise to zero: 127 / max|x| would leave float32.
inline constexpr float kSmallestActivation = 0x1p-100f;

}  // namespace moed
