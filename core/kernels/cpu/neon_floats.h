// The float formats and products with them. Lane r of a panel's two vectors is row r, so every lane does what the scalar
// definition does for its row: column k belongs to partial sum k mod 8. Everything here stays within the file that includes it
// (unnamed namespace), since those are compiled for different instruction sets.
#pragma once

#include <arm_neon.h>

#include "core/kernels/cpu/neon_tiles.h"

namespace moed::neon {
namespace {

// Rows 4 half ... + 3 of one column.
struct F32 {
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 4;
  static inline float32x4_t Load(const unsigned char* column, int half) {
    return vreinterpretq_f32_u8(vld1q_u8(column + 16 * half));
  }
};
struct F16 {
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 2;
  static inline float32x4_t Load(const unsigned char* column, int half) { return LoadHalves(column + 8 * half); }
};
struct BF16 {
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 2;
  static inline float32x4_t Load(const unsigned char* column, int half) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(column + 8 * half)), 16));
  }
};

constexpr int kPartials = 8;
constexpr int kColumnsTogether = 256;  // a tile passes over them several times, from the first-level cache

template <class Element>
struct FloatTile {
  static constexpr int kColumnBytes = Element::kBytes * kRows;

  // One column of kPanels panels times its activations in lane kLane of `x`.
  template <int kLane, int kPanels, int kTokens>
  static inline void AddColumn(const unsigned char* column, int64_t panel_bytes, const float32x2_t (&x)[kTokens],
                               float32x4_t (&sum)[kPanels][2][kTokens]) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const float32x4_t w = Element::Load(column + p * panel_bytes, half);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sum[p][half][t] = vfmaq_lane_f32(sum[p][half][t], w, x[t], kLane);
      }
    }
  }

  // So many partial sums at a time that they stay in registers.
  template <int kPanels, int kTokens>
  static inline void Run(const MatMulArguments& a, int panel, int token) {
    constexpr int kTogether = kPartials / (kPanels * kTokens);
    static_assert(kTogether >= 2);
    const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
    const int64_t range = kTogether == kPartials ? width : kColumnsTogether;
    const int64_t panel_bytes = width * kColumnBytes;
    const unsigned char* weights = a.weights + panel * panel_bytes;
    const float* values = a.values + token * width;
    float32x4_t partial[kPartials][kPanels][2][kTokens] = {};
    for (int64_t begin = 0; begin < width; begin += range) {
      const int64_t end = width - begin < range ? width : begin + range;
      for (int first = 0; first < kPartials; first += kTogether) {
        float32x4_t sum[kTogether][kPanels][2][kTokens];
        __builtin_memcpy(sum, partial[first], sizeof(sum));
        for (int64_t k = begin + first; k < end; k += kPartials) {
#pragma GCC unroll 4
          for (int i = 0; i < kTogether; i += 2) {
            float32x2_t x[kTokens];
#pragma GCC unroll 4
            for (int t = 0; t < kTokens; ++t) x[t] = vld1_f32(values + t * width + k + i);
            AddColumn<0>(weights + (k + i) * kColumnBytes, panel_bytes, x, sum[i]);
            AddColumn<1>(weights + (k + i + 1) * kColumnBytes, panel_bytes, x, sum[i + 1]);
          }
        }
        __builtin_memcpy(partial[first], sum, sizeof(sum));
      }
    }
    float32x4_t row_sum[kPanels][2][kTokens];
    for (int p = 0; p < kPanels; ++p) {
      for (int half = 0; half < 2; ++half) {
        for (int t = 0; t < kTokens; ++t) {
          const auto s = [&](int i) { return partial[i][p][half][t]; };
          const float32x4_t even = vaddq_f32(vaddq_f32(s(0), s(4)), vaddq_f32(s(2), s(6)));
          const float32x4_t odd = vaddq_f32(vaddq_f32(s(1), s(5)), vaddq_f32(s(3), s(7)));
          row_sum[p][half][t] = vaddq_f32(even, odd);
        }
      }
    }
    StoreTile(a, panel, token, row_sum);
  }
};

template <class Element>
inline void FloatMatMul(const MatMulArguments& a, int begin, int end) {
  ForPanelGroups(begin, end, [&](int first, int last) { RunTiles<FloatTile<Element>>(a, first, last); });
}

}  // namespace
}  // namespace moed::neon
