// The block formats as signed bytes. Everything here stays within the file that includes it (unnamed namespace), since those are
// compiled for different instruction sets.
#pragma once

#include <arm_neon.h>

#include "core/kernels/cpu/neon_tiles.h"

namespace moed::neon {
namespace {

// A block has kHeader bytes of scales, then kVectors vectors of 32 bytes, byte 4 r + j of which is column 4 g + j of row r for
// each group of columns g in 0..7 that the vector g % kVectors holds. `Unpack` takes the codes of group kGroup out of a vector's
// bytes; with kThirdBits one more vector follows, bit g of whose bytes is the third bit of group g. An integer sum of products
// begins with kBias * sum of the activations; `Add` is what one block contributes to four results.
struct Q8 {
  static constexpr bool kFloats = false;
  static constexpr int kHeader = 16;
  static constexpr int kVectors = 8;
  static constexpr int kBias = 0;
  static constexpr bool kThirdBits = false;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    return vreinterpretq_s8_u8(packed);
  }
  static inline float32x4_t Add(float32x4_t sum, int32x4_t dot, float32x4_t scale, float32x4_t, float32x4_t x_scale, int32x4_t) {
    return vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(scale, x_scale));
  }
};

struct Q4 {
  static constexpr bool kFloats = false;
  static constexpr int kHeader = 16;
  static constexpr int kVectors = 4;
  static constexpr int kBias = -8;
  static constexpr bool kThirdBits = false;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    if constexpr (kGroup < 4) return vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
    return vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
  }
  static inline float32x4_t Add(float32x4_t sum, int32x4_t dot, float32x4_t scale, float32x4_t, float32x4_t x_scale, int32x4_t) {
    return vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(scale, x_scale));
  }
};

struct WithOffsets {
  static constexpr bool kFloats = false;
  static constexpr int kHeader = 32;
  static constexpr int kBias = 0;
  static constexpr bool kThirdBits = false;

  static inline float32x4_t Add(float32x4_t sum, int32x4_t dot, float32x4_t scale, float32x4_t offset, float32x4_t x_scale,
                                int32x4_t x_sum) {
    sum = vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(scale, x_scale));
    return vfmaq_f32(sum, vcvtq_f32_s32(x_sum), vmulq_f32(offset, x_scale));
  }
};

struct Q2 : WithOffsets {
  static constexpr int kVectors = 2;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    constexpr int kShift = kGroup / 2 * 2;
    if constexpr (kShift > 0) packed = vshrq_n_u8(packed, kShift);
    return vreinterpretq_s8_u8(kShift < 6 ? vandq_u8(packed, vdupq_n_u8(3)) : packed);
  }
};

struct Q4A : WithOffsets {
  static constexpr int kVectors = 4;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    return Q4::Unpack<kGroup>(packed);
  }
};

struct Q3 : Q2 {
  static constexpr bool kThirdBits = true;

  // 4 or 0.
  template <int kGroup>
  static inline uint8x16_t UnpackThird(uint8x16_t packed) {
    if constexpr (kGroup < 2) packed = vshlq_n_u8(packed, 2 - kGroup);
    if constexpr (kGroup > 2) packed = vshrq_n_u8(packed, kGroup - 2);
    return vandq_u8(packed, vdupq_n_u8(4));
  }
};

template <class Block>
constexpr int kBlockBytes = Block::kHeader + 32 * (Block::kVectors + (Block::kThirdBits ? 1 : 0));

// Half 0 or 1 (rows 0..3 or 4..7) of the vector that holds group `group`.
template <class Block>
inline uint8x16_t LoadVector(const unsigned char* block, int group, int half) {
  return vld1q_u8(block + Block::kHeader + 32 * (group % Block::kVectors) + 16 * half);
}

// The codes of group kGroup.
template <class Block, int kGroup>
inline int8x16_t LoadGroup(const unsigned char* block, int half) {
  const int8x16_t codes = Block::template Unpack<kGroup>(LoadVector<Block>(block, kGroup, half));
  if constexpr (Block::kThirdBits) {
    const uint8x16_t thirds = vld1q_u8(block + Block::kHeader + 32 * Block::kVectors + 16 * half);
    return vorrq_s8(codes, vreinterpretq_s8_u8(Block::template UnpackThird<kGroup>(thirds)));
  }
  return codes;
}

template <class Block>
inline float32x4_t LoadScales(const unsigned char* block, int half) {
  return LoadHalves(block + 8 * half);
}

// Of a format without offsets: not used.
template <class Block>
inline float32x4_t LoadOffsets(const unsigned char* block, int half) {
  if constexpr (Block::kHeader < 32) return vdupq_n_f32(0);
  return LoadHalves(block + Block::kHeader / 2 + 8 * half);
}

}  // namespace
}  // namespace moed::neon
