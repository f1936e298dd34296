// The formats of codes and scales as signed bytes. Layouts: quant/block_layouts.h. Everything here stays within the file that
// includes it (unnamed namespace), since those are compiled for different instruction sets.
//   codes   of 32 columns: Group<g> is half 0 or 1 (rows 0..3 or 4..7) of a vector whose byte 4 r + j is the code of row r and
//           column 4 g + j. An integer sum of products begins with kBias * sum of the activations. Where kPlain is true, groups
//           2 s and 2 s + 1 are unpacked alike from their vectors' bytes
//   scales  of part kPart (all, or a half) of the columns 32 b to 32 b + 31 of a block
#pragma once

#include <arm_neon.h>

#include "core/kernels/cpu/neon_tiles.h"
#include "core/quant/byte_scale.h"
#include "core/quant/fp8.h"
#include "core/quant/level_tables.h"

namespace moed::neon {
namespace {

inline uint8x16_t LoadVector(const unsigned char* codes, int vector, int half) {
  return vld1q_u8(codes + 32 * vector + 16 * half);
}

template <class Codes, int kVectorCount>
struct PlainCodes {
  static constexpr bool kPlain = true;
  static constexpr int kVectors = kVectorCount;
  static constexpr int kBytes = 32 * kVectors;
  template <int kGroup>
  static inline int8x16_t Group(const unsigned char* codes, int half) {
    return Codes::template Unpack<kGroup>(LoadVector(codes, kGroup % kVectors, half));
  }
};
struct CodesOf8Bits : PlainCodes<CodesOf8Bits, 8> {
  static constexpr int kBias = 0;
  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    return vreinterpretq_s8_u8(packed);
  }
};
template <int kCentre>
struct CodesOf4Bits : PlainCodes<CodesOf4Bits<kCentre>, 4> {
  static constexpr int kBias = -kCentre;
  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    if constexpr (kGroup < 4) return vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
    return vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
  }
};
struct CodesOf2Bits : PlainCodes<CodesOf2Bits, 2> {
  static constexpr int kBias = 0;
  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    constexpr int kShift = kGroup / 2 * 2;
    if constexpr (kShift > 0) packed = vshrq_n_u8(packed, kShift);
    return vreinterpretq_s8_u8(kShift < 6 ? vandq_u8(packed, vdupq_n_u8(3)) : packed);
  }
};
template <const int8_t (&kLevels)[16]>
struct TableCodes : PlainCodes<TableCodes<kLevels>, 4> {
  static constexpr int kBias = 0;
  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    return vqtbl1q_s8(vld1q_s8(kLevels), vreinterpretq_u8_s8(CodesOf4Bits<0>::Unpack<kGroup>(packed)));
  }
};

// More bits, kBits of a code from bit kAt on, in a plane behind the low ones.
template <class Low, int kBits, int kAt, int kCentre = 0>
struct MoreBits {
  static constexpr bool kPlain = false;
  static constexpr int kBytes = Low::kBytes + 32 * kBits;
  static constexpr int kBias = -kCentre;
  template <int kGroup>
  static inline int8x16_t Group(const unsigned char* codes, int half) {
    constexpr int kFrom = kGroup / kBits * kBits;
    uint8x16_t more = LoadVector(codes + Low::kBytes, kGroup % kBits, half);
    if constexpr (kFrom < kAt) more = vshlq_n_u8(more, kAt - kFrom);
    if constexpr (kFrom > kAt) more = vshrq_n_u8(more, kFrom - kAt);
    more = vandq_u8(more, vdupq_n_u8(((1 << kBits) - 1) << kAt));
    return vorrq_s8(Low::template Group<kGroup>(codes, half), vreinterpretq_s8_u8(more));
  }
};

// Magnitudes m of the grid, odd and below 16: 16 + m is m ^ 16, 16 - m is m ^ 14.
struct GridCodes {
  static constexpr bool kPlain = false;
  static constexpr int kBytes = 104;
  static constexpr int kBias = -16;
  template <int kGroup>
  static inline int8x16_t Group(const unsigned char* codes, int half) {
    uint32_t rows[4];
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * half + i;
      rows[i] = kIq3sGrid.rows[codes[8 * kGroup + row] | (codes[64 + row] >> kGroup & 1) << 8];
    }
    const uint8x16_t minus = vtstq_u8(vld1q_u8(codes + 72 + 16 * half), vdupq_n_u8(1 << kGroup));
    const uint8x16_t magnitudes = vreinterpretq_u8_u32(vld1q_u32(rows));
    return vreinterpretq_s8_u8(veorq_u8(magnitudes, vbslq_u8(minus, vdupq_n_u8(14), vdupq_n_u8(16))));
  }
};

// Pairs of levels, see quant/pair_planes.h.
struct PairCodes {
  static constexpr bool kPlain = false;
  static constexpr int kBytes = 80;
  static constexpr int kBias = 0;
  template <int kGroup>
  static inline int8x16_t Group(const unsigned char* codes, int half) {
    constexpr int kPairs = kGroup % 4;  // 4 kPairs to 4 kPairs + 3
    const uint8x16_t both = LoadVector(codes, kPairs % 2, half);
    const uint8x16_t n = kPairs < 2 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
    if constexpr (kGroup < 4) {
      return vqtbl1q_s8(vld1q_s8(kPairFirst), n);
    } else {
      const uint8x16_t turned = vtstq_u8(vld1q_u8(codes + 64), vdupq_n_u8(static_cast<uint8_t>(1 << (kPairs + 4 * half))));
      return veorq_s8(vqtbl1q_s8(vld1q_s8(kPairSecond), n), vreinterpretq_s8_u8(vandq_u8(turned, vdupq_n_u8(kPairTurn))));
    }
  }
};

template <bool kOffsets>
struct HalfScales {
  static constexpr int kHeaderBytes = kOffsets ? 32 : 16;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = kOffsets;
  static inline float32x4_t Scale(const unsigned char* block, int half, int, int) { return LoadHalves(block + 8 * half); }
  static inline float32x4_t Offset(const unsigned char* block, int half, int, int) { return LoadHalves(block + 16 + 8 * half); }
};

// Number `part` of kBits bits; of six bits: the low four of kParts numbers, then the high two.
template <int kBits>
inline uint32x4_t PartBits(const unsigned char* numbers, int half, int part) {
  const uint32x4_t bytes = LoadBytes(numbers + 8 * (part * kBits / 8), half);
  return vandq_u32(vshlq_u32(bytes, vdupq_n_s32(-(part * kBits % 8))), vdupq_n_u32((1 << kBits) - 1));
}
template <int kParts>
inline uint32x4_t SixBits(const unsigned char* numbers, int half, int part) {
  return vsliq_n_u32(PartBits<4>(numbers, half, part), PartBits<2>(numbers + 4 * kParts, half, part), 4);
}

// d, and -(d z) with a byte z.
template <int kBlocksOfScale>
struct ZeroPoints {
  static constexpr int kHeaderBytes = 24;
  static constexpr int kBlocks = kBlocksOfScale;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = true;
  static inline float32x4_t Scale(const unsigned char* block, int half, int, int) { return LoadHalves(block + 8 * half); }
  static inline float32x4_t Offset(const unsigned char* block, int half, int, int) {
    return vnegq_f32(vmulq_f32(LoadHalves(block + 8 * half), vcvtq_f32_u32(LoadBytes(block + 16, half))));
  }
};

inline int32x4_t LoadSignedBytes(const unsigned char* at, int half) {
  return vshrq_n_s32(vreinterpretq_s32_u32(vshlq_n_u32(LoadBytes(at, half), 24)), 24);
}

// d of a byte, and d n / 16 with an int8 n.
struct ByteLines {
  static constexpr int kHeaderBytes = 16;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = true;
  static inline float32x4_t Scale(const unsigned char* block, int half, int, int) {
    const uint32x4_t upper = vaddq_u32(LoadBytes(block, half), vdupq_n_u32(quant::kByteScaleBias));
    return vreinterpretq_f32_u32(vshlq_n_u32(upper, quant::kByteScaleShift));
  }
  static inline float32x4_t Offset(const unsigned char* block, int half, int b, int part) {
    const float32x4_t steps = vcvtq_f32_s32(LoadSignedBytes(block + 8, half));
    return vmulq_f32(Scale(block, half, b, part), vmulq_n_f32(steps, quant::kOffsetStep));
  }
};

// 2^(e - 128).
struct ExponentScales {
  static constexpr int kHeaderBytes = 8;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = false;
  static inline float32x4_t Scale(const unsigned char* block, int half, int, int) {
    const uint32x4_t e = LoadBytes(block, half);
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(1 << 21), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal));
  }
};

// Numbers of e4m3 of every 16 columns, times what a factor and its rest are.
struct FactorScales {
  static constexpr int kHeaderBytes = 40;
  static constexpr int kBlocks = 2;
  static constexpr int kParts = 2;
  static constexpr bool kHasOffsets = false;
  static inline float32x4_t Scale(const unsigned char* block, int half, int b, int part) {
    const uint32x4_t codes = LoadBytes(block + 8 + 8 * (kParts * b + part), half);
    const float32x4_t number = vmulq_n_f32(vreinterpretq_f32_u32(vshlq_n_u32(codes, 20)), quant::kE4m3Shift);
    const auto* const factor = reinterpret_cast<const float*>(block);
    return vfmaq_f32(vmulq_f32(number, vld1q_dup_f32(factor + 1)), number, vld1q_dup_f32(factor));
  }
};

// d n and -(m s) with n and s of four bits every 16 columns, or of six bits every 32.
template <int kPartsOfBlock>
struct LinesOfParts {
  static constexpr int kNumberBytes = kPartsOfBlock == 2 ? 64 : 48;
  static constexpr int kHeaderBytes = 32 + 2 * kNumberBytes;
  static constexpr int kBlocks = 8;
  static constexpr int kParts = kPartsOfBlock;
  static constexpr bool kHasOffsets = true;
  static inline float32x4_t Number(const unsigned char* numbers, int half, int b, int part) {
    if constexpr (kParts == 2) return vcvtq_f32_u32(PartBits<4>(numbers, half, 2 * b + part));
    return vcvtq_f32_u32(SixBits<8>(numbers, half, b));
  }
  static inline float32x4_t Scale(const unsigned char* block, int half, int b, int part) {
    return vmulq_f32(LoadHalves(block + 8 * half), Number(block + 32, half, b, part));
  }
  static inline float32x4_t Offset(const unsigned char* block, int half, int b, int part) {
    return vnegq_f32(vmulq_f32(LoadHalves(block + 16 + 8 * half), Number(block + 32 + kNumberBytes, half, b, part)));
  }
};

// d times a number of the part: n - 32 of six bits, int8 n, or 2 n + 1 of four.
struct SixBitNumbers {
  static constexpr int kBytes(int parts) { return 6 * parts; }
  template <int kParts>
  static inline int32x4_t Get(const unsigned char* numbers, int half, int part) {
    return vsubq_s32(vreinterpretq_s32_u32(SixBits<kParts>(numbers, half, part)), vdupq_n_s32(32));
  }
};
struct SignedNumbers {
  static constexpr int kBytes(int parts) { return 8 * parts; }
  template <int>
  static inline int32x4_t Get(const unsigned char* numbers, int half, int part) {
    return LoadSignedBytes(numbers + 8 * part, half);
  }
};
struct OddNumbers {
  static constexpr int kBytes(int parts) { return 4 * parts; }
  template <int>
  static inline int32x4_t Get(const unsigned char* numbers, int half, int part) {
    const uint32x4_t number = PartBits<4>(numbers, half, part);
    return vreinterpretq_s32_u32(vaddq_u32(vaddq_u32(number, number), vdupq_n_u32(1)));
  }
};
template <class Numbers, int kPartsOfBlock>
struct ScalesOfParts {
  static constexpr int kBlocks = 8;
  static constexpr int kParts = kPartsOfBlock;
  static constexpr int kHeaderBytes = 16 + Numbers::kBytes(kBlocks * kParts);
  static constexpr bool kHasOffsets = false;
  static inline float32x4_t Scale(const unsigned char* block, int half, int b, int part) {
    const int32x4_t number = Numbers::template Get<kBlocks * kParts>(block + 16, half, kParts * b + part);
    return vmulq_f32(LoadHalves(block + 8 * half), vcvtq_f32_s32(number));
  }
};

// A format of codes and scales. `block` is one panel block, b counts its blocks of 32 columns.
template <class AnyCodes, class Scales>
struct Block : Scales {
  using Codes = AnyCodes;
  static constexpr bool kFloats = false;
  static constexpr int kBias = Codes::kBias;
  static constexpr int kBytes = Scales::kHeaderBytes + Scales::kBlocks * Codes::kBytes;
  static_assert(!Scales::kHasOffsets || kBias == 0);
  static inline const unsigned char* CodesAt(const unsigned char* block, int b) {
    return block + Scales::kHeaderBytes + Codes::kBytes * b;
  }
};

// The scale and the offset of four results' parts; two results for each of two rows in a product of pairs.
struct Line {
  float32x4_t scale;
  float32x4_t offset;
};
template <class Format>
inline Line LoadLine(const unsigned char* block, int half, int b, int part) {
  if constexpr (Format::kHasOffsets) return {Format::Scale(block, half, b, part), Format::Offset(block, half, b, part)};
  return {Format::Scale(block, half, b, part), vdupq_n_f32(0)};
}

// What one part contributes to four results.
template <class Format>
inline float32x4_t AddDot(float32x4_t sum, int32x4_t dot, const Line& line, float32x4_t x_scale, int32x4_t x_sum) {
  sum = vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(line.scale, x_scale));
  if constexpr (Format::kHasOffsets) sum = vfmaq_f32(sum, vcvtq_f32_s32(x_sum), vmulq_f32(line.offset, x_scale));
  return sum;
}

}  // namespace
}  // namespace moed::neon
