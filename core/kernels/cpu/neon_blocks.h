// The block formats as signed bytes. Everything here stays within the file that includes it (unnamed namespace), since those are
// compiled for different instruction sets.
#pragma once

#include <arm_neon.h>

#include "core/kernels/cpu/neon_tiles.h"

namespace moed::neon {
namespace {

// A block has kHeader bytes of scales, then kVectors vectors of 32 bytes, byte 4 r + j of which is column 4 g + j of row r for
// each group of columns g in 0..7 that the vector g % kVectors holds. `Unpack` takes the codes of group kGroup out of a vector's
// bytes; an integer sum of products begins with kBias * sum of the activations; `Add` is what one block contributes to four
// results.
struct Q8 {
  static constexpr int kHeader = 16;
  static constexpr int kVectors = 8;
  static constexpr int kBias = 0;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    return vreinterpretq_s8_u8(packed);
  }
  static inline float32x4_t Add(float32x4_t sum, int32x4_t dot, float32x4_t scale, float32x4_t, float32x4_t x_scale, int32x4_t) {
    return vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(scale, x_scale));
  }
};

struct Q4 {
  static constexpr int kHeader = 16;
  static constexpr int kVectors = 4;
  static constexpr int kBias = -8;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    if constexpr (kGroup < 4) return vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
    return vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
  }
  static inline float32x4_t Add(float32x4_t sum, int32x4_t dot, float32x4_t scale, float32x4_t, float32x4_t x_scale, int32x4_t) {
    return vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(scale, x_scale));
  }
};

struct Q2 {
  static constexpr int kHeader = 32;
  static constexpr int kVectors = 2;
  static constexpr int kBias = 0;

  template <int kGroup>
  static inline int8x16_t Unpack(uint8x16_t packed) {
    constexpr int kShift = kGroup / 2 * 2;
    if constexpr (kShift > 0) packed = vshrq_n_u8(packed, kShift);
    return vreinterpretq_s8_u8(kShift < 6 ? vandq_u8(packed, vdupq_n_u8(3)) : packed);
  }
  static inline float32x4_t Add(float32x4_t sum, int32x4_t dot, float32x4_t scale, float32x4_t offset, float32x4_t x_scale,
                                int32x4_t x_sum) {
    sum = vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_f32(scale, x_scale));
    return vfmaq_f32(sum, vcvtq_f32_s32(x_sum), vmulq_f32(offset, x_scale));
  }
};

template <class Block>
constexpr int kBlockBytes = Block::kHeader + 32 * Block::kVectors;

// Half 0 or 1 (rows 0..3 or 4..7) of the vector that holds group `group`.
template <class Block>
inline uint8x16_t LoadVector(const unsigned char* block, int group, int half) {
  return vld1q_u8(block + Block::kHeader + 32 * (group % Block::kVectors) + 16 * half);
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
