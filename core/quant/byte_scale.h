// Scales of a byte, those of q2s and q2p: 5 bits of exponent e, 3 of mantissa m, value (1 + m / 8) 2^(e - 24). Every byte is a
// positive finite number, and more is more.
#pragma once

#include <bit>
#include <cstdint>

namespace moed::quant {

inline constexpr int kByteScaleShift = 20;                   // places of a float32's mantissa that a byte lacks
inline constexpr uint32_t kByteScaleBias = (127 - 24) << 3;  // what a byte lacks of a float32's upper bits
inline constexpr float kLeastByteScale = 0x1p-24f;
inline constexpr float kLargestByteScale = 240;
inline constexpr float kOffsetStep = 0x1p-4f;  // of their offsets, in units of the scale

constexpr float ByteScaleToFloat(uint8_t byte) { return std::bit_cast<float>((byte + kByteScaleBias) << kByteScaleShift); }

// Of a number that ByteScaleToFloat returned.
constexpr uint8_t FloatToByteScale(float scale) {
  return static_cast<uint8_t>((std::bit_cast<uint32_t>(scale) >> kByteScaleShift) - kByteScaleBias);
}

}  // namespace moed::quant
