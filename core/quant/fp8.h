// fp8: numbers of e4m3 times a float32 scale for 128 columns of a row. A panel block is 8 float32 scales, then 128 columns, each
// 8 codes (row 0..7). Data, and functions of internal linkage: files compiled for one instruction set include this.
#pragma once

#include <stdint.h>

#include "core/quant/format_id.h"

namespace moed::quant {

inline constexpr int kFp8BlockColumns = 128;
inline constexpr int kFp8HeaderBytes = 4 * kPanelRows;
inline constexpr int kFp8PanelBlockBytes = kFp8HeaderBytes + kFp8BlockColumns * kPanelRows;

// Where a column's codes are in a panel, and the scales of its block.
static constexpr int64_t Fp8Header(int64_t column) { return column / kFp8BlockColumns * kFp8PanelBlockBytes; }
static constexpr int64_t Fp8Codes(int64_t column) {
  return Fp8Header(column) + kFp8HeaderBytes + column % kFp8BlockColumns * kPanelRows;
}

// E4m3: sign, 4 bits of exponent, 3 of mantissa, no infinities: s x 2^(e - 7) x 1.mmm, and s x 2^-6 x 0.mmm for e = 0. Its bits
// shifted are a float32 of 2^-120 times that. 0x7f and 0xff, the format's NaN, are in no store; here they go on as the others do.
inline constexpr float kE4m3Shift = 0x1p120f;
// Of a word whose upper byte is the code.
static constexpr float UpperE4m3ToFloat(uint32_t word) {
  const int32_t bits = static_cast<int32_t>(word) >> 4 & static_cast<int32_t>(0x87f00000);  // the sign came five times
  return __builtin_bit_cast(float, bits) * kE4m3Shift;
}
static constexpr float E4m3ToFloat(uint8_t code) { return UpperE4m3ToFloat(static_cast<uint32_t>(code) << 24); }

// Without a sign, as nvfp4 has scales; a byte above 0x7e, which is in no store, goes on as if the exponent had 5 bits.
static constexpr float UnsignedE4m3ToFloat(uint8_t code) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(code) << 20) * kE4m3Shift;
}

}  // namespace moed::quant
