// Products with unquantised matrices. Lane r of a panel's two vectors is row r, so every lane does what the scalar definition
// does for its row, in the same order.
#include "core/kernels/cpu/neon_tiles.h"

namespace moed::neon {
namespace {

// Rows 4 half ... + 3 of one column.
struct F32 {
  static constexpr int kBytes = 4;
  static inline float32x4_t Load(const unsigned char* column, int half) {
    return vreinterpretq_f32_u8(vld1q_u8(column + 16 * half));
  }
};
struct F16 {
  static constexpr int kBytes = 2;
  static inline float32x4_t Load(const unsigned char* column, int half) { return LoadHalves(column + 8 * half); }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static inline float32x4_t Load(const unsigned char* column, int half) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(column + 8 * half)), 16));
  }
};

template <class Element>
struct FloatTile {
  static constexpr int kColumnBytes = Element::kBytes * kRows;

  // Columns k + kLane of kPanels panels times their activations in lane kLane of `x`, and the columns after it up to lane 3.
  template <int kLane, int kPanels, int kTokens>
  static inline void AddColumns(const unsigned char* weights, int64_t panel_bytes, const float32x4_t (&x)[kTokens],
                                float32x4_t (&sum)[kPanels][2][kTokens]) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const float32x4_t w = Element::Load(weights + p * panel_bytes + kLane * kColumnBytes, half);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sum[p][half][t] = vfmaq_laneq_f32(sum[p][half][t], w, x[t], kLane);
      }
    }
    if constexpr (kLane < 3) AddColumns<kLane + 1>(weights, panel_bytes, x, sum);
  }

  template <int kPanels, int kTokens>
  static inline void Run(const MatMulArguments& a, int panel, int token) {
    const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
    const int64_t panel_bytes = width * kColumnBytes;
    const unsigned char* weights = a.weights + panel * panel_bytes;
    const float* values = a.values + token * width;
    float32x4_t sum[kPanels][2][kTokens] = {};
    for (int64_t k = 0; k < width; k += 4) {
      float32x4_t x[kTokens];
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) x[t] = vld1q_f32(values + t * width + k);
      AddColumns<0>(weights + k * kColumnBytes, panel_bytes, x, sum);
    }
    StoreTile(a, panel, token, sum);
  }
};

template <class Element>
void FloatMatMul(const MatMulArguments& a, int begin, int end) {
  ForPanelGroups(begin, end, [&](int first, int last) { RunTiles<FloatTile<Element>>(a, first, last); });
}

}  // namespace

void MatMulF32(const MatMulArguments& a, int begin, int end) { FloatMatMul<F32>(a, begin, end); }
void MatMulF16(const MatMulArguments& a, int begin, int end) { FloatMatMul<F16>(a, begin, end); }
void MatMulBF16(const MatMulArguments& a, int begin, int end) { FloatMatMul<BF16>(a, begin, end); }

}  // namespace moed::neon
