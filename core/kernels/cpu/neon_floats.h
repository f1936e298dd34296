// The float formats and products with them. Lane r of a panel's two vectors is row r, so every lane does what the scalar
// definition does for its row: column k belongs to partial sum k mod 8. Everything here stays within the file that includes it
// (unnamed namespace), since those are compiled for different instruction sets.
#pragma once

#include <arm_neon.h>

#include "core/kernels/cpu/neon_tiles.h"
#include "core/quant/fp8.h"

namespace moed::neon {
namespace {

// Rows 4 half ... + 3 of column k + i of a panel, which is in the same eight as column k; panels are PanelBytes(width) apart.
template <int kElementBytes>
struct PlainColumns {
  static constexpr bool kFloats = true;
  static constexpr int64_t PanelBytes(int64_t width) { return width * kRows * kElementBytes; }
  static constexpr int64_t At(int64_t k, int i, int half) { return kElementBytes * ((k + i) * kRows + 4 * half); }
};
struct F32 : PlainColumns<4> {
  static inline float32x4_t Load(const unsigned char* panel, int64_t k, int i, int half) {
    return vreinterpretq_f32_u8(vld1q_u8(panel + At(k, i, half)));
  }
};
struct F16 : PlainColumns<2> {
  static inline float32x4_t Load(const unsigned char* panel, int64_t k, int i, int half) {
    return LoadHalves(panel + At(k, i, half));
  }
};
struct BF16 : PlainColumns<2> {
  static inline float32x4_t Load(const unsigned char* panel, int64_t k, int i, int half) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(panel + At(k, i, half))), 16));
  }
};
struct Fp8 {
  static constexpr bool kFloats = true;
  static constexpr int64_t PanelBytes(int64_t width) { return quant::Fp8Header(width); }
  static inline float32x4_t Load(const unsigned char* panel, int64_t k, int i, int half) {
    const uint32x4_t codes = LoadBytes(panel + quant::Fp8Codes(k) + kRows * i, half);
    const uint32x4_t sign = vandq_u32(vshlq_n_u32(codes, 24), vdupq_n_u32(0x80000000u));
    const uint32x4_t magnitude = vandq_u32(vshlq_n_u32(codes, 20), vdupq_n_u32(0x07f00000u));
    const float32x4_t number = vmulq_n_f32(vreinterpretq_f32_u32(vorrq_u32(sign, magnitude)), quant::kE4m3Shift);
    return vmulq_f32(number, vreinterpretq_f32_u8(vld1q_u8(panel + quant::Fp8Header(k) + 16 * half)));
  }
};

constexpr int kPartials = 8;
constexpr int kColumnsTogether = 256;  // a tile passes over them several times, from the first-level cache

template <class Element>
struct FloatTile {
  // Column k + i of kPanels panels times its activations in lane kLane of `x`.
  template <int kLane, int kPanels, int kTokens>
  static inline void AddColumn(const unsigned char* panels, int64_t panel_bytes, int64_t k, int i,
                               const float32x2_t (&x)[kTokens], float32x4_t (&sum)[kPanels][2][kTokens]) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const float32x4_t w = Element::Load(panels + p * panel_bytes, k, i, half);
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
    const int64_t panel_bytes = Element::PanelBytes(width);
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
            AddColumn<0>(weights, panel_bytes, k, i, x, sum[i]);
            AddColumn<1>(weights, panel_bytes, k, i + 1, x, sum[i + 1]);
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
