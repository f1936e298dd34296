// Products with float matrices. A vector's lane r is row r of a panel, so every lane does what the scalar definition does for
// its row, in the same order.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/vectors256.h"

namespace moed::avx2 {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 32;

inline __m256 Broadcast(const float* x) { return _mm256_broadcast_ss(x); }

struct F32 {
  static constexpr int kBytes = 4;
  static inline __m256 Load(const unsigned char* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static inline __m256 Load(const unsigned char* at) { return Vectors256::LoadHalves(at); }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static inline __m256 Load(const unsigned char* at) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
};

// kPanels panels times kTokens tokens: so many independent chains of fused multiply-adds.
template <class Element, int kPanels, int kTokens>
inline void FloatTile(const MatMulArguments& a, int panel, int token) {
  const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
  const int64_t panel_bytes = width * kRows * Element::kBytes;
  const unsigned char* weights = a.weights + panel * panel_bytes;
  const float* values = a.values + token * width;
  __m256 sum[kPanels][kTokens];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) sum[p][t] = _mm256_setzero_ps();
  }
  for (int64_t k = 0; k < width; ++k) {
    __m256 x[kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) x[t] = Broadcast(values + t * width + k);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const __m256 w = Element::Load(weights + p * panel_bytes + k * kRows * Element::kBytes);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) sum[p][t] = _mm256_fmadd_ps(w, x[t], sum[p][t]);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const int row = (panel + p) * kRows;
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t)
      Vectors256::StoreRows(a.output + (token + t) * a.output_stride + row, a.rows - row, sum[p][t]);
  }
}

template <class Element, int kPanels>
inline void FloatPanels(const MatMulArguments& a, int panel) {
  int token = 0;
  for (; token + 2 <= a.tokens; token += 2) FloatTile<Element, kPanels, 2>(a, panel, token);
  if (token < a.tokens) FloatTile<Element, kPanels, 1>(a, panel, token);
}

template <class Element>
void FloatMatMul(const MatMulArguments& a, int begin, int end) {
  int panel = begin;
  for (; panel + 4 <= end; panel += 4) FloatPanels<Element, 4>(a, panel);
  for (; panel < end; ++panel) FloatPanels<Element, 1>(a, panel);
}

}  // namespace

void MatMulF32(const MatMulArguments& a, int begin, int end) { FloatMatMul<F32>(a, begin, end); }
void MatMulF16(const MatMulArguments& a, int begin, int end) { FloatMatMul<F16>(a, begin, end); }
void MatMulBF16(const MatMulArguments& a, int begin, int end) { FloatMatMul<BF16>(a, begin, end); }

}  // namespace moed::avx2
