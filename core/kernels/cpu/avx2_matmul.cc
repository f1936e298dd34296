// Products with packed matrices. A vector's lane r is row r of a panel, so every lane does what the scalar definition does for
// its row, in the same order. Includes intrinsics and plain declarations only: nothing inline may leave this file with AVX2 in
// it.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"

namespace moed::avx2 {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 32;

// Rows of the panel that the matrix has, to one token's output.
inline void StoreRows(float* out, int rows, __m256 sums) {
  if (rows >= kRows) {
    _mm256_storeu_ps(out, sums);
    return;
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  _mm256_maskstore_ps(out, _mm256_cmpgt_epi32(_mm256_set1_epi32(rows), lane), sums);
}

inline __m256i LoadVector(const unsigned char* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

inline __m256 LoadHalves(const unsigned char* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

// Four activation codes in every lane.
inline __m256i Group(const int8_t* codes) {
  return _mm256_set1_epi32(*reinterpret_cast<const int __attribute__((may_alias))*>(codes));
}

// 16-bit pairs to one 32-bit sum a lane.
inline __m256i AddPairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

inline __m256 Broadcast(const float* x) { return _mm256_broadcast_ss(x); }

// A block format: `Dot` gives each row's integer dot product with kTokens tokens' codes (`width` apart), `Add` what one block
// contributes to a row's sum.
struct Q8 {
  static constexpr int kBytes = 272;

  template <int kTokens>
  static inline void Dot(const unsigned char* block, const int8_t* codes, int64_t width, __m256i (&dot)[kTokens]) {
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      const __m256i w = LoadVector(block + 16 + 32 * v);
      const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const __m256i x = _mm256_sign_epi8(Group(codes + t * width + 4 * v), w);
        const __m256i product = AddPairs(_mm256_maddubs_epi16(magnitude, x));  // 2 * 128 * 127 stays below 2^15
        dot[t] = v == 0 ? product : _mm256_add_epi32(dot[t], product);
      }
    }
  }

  static inline __m256 Add(const unsigned char*, __m256 scale, __m256i dot, __m256 x_scale, const int32_t*, __m256 sum) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, x_scale), sum);
  }
};

struct Q4 {
  static constexpr int kBytes = 144;

  template <int kTokens>
  static inline void Dot(const unsigned char* block, const int8_t* codes, int64_t width, __m256i (&dot)[kTokens]) {
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m256i both = LoadVector(block + 16 + 32 * v);
      const __m256i low = _mm256_and_si256(both, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const int8_t* x = codes + t * width + 4 * v;
        // 16-bit sums: 16 products of at most 15 * 127 stay below 2^15.
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, Group(x)), _mm256_maddubs_epi16(high, Group(x + 16)));
        dot[t] = v == 0 ? pairs : _mm256_add_epi16(dot[t], pairs);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) dot[t] = AddPairs(dot[t]);
  }

  static inline __m256 Add(const unsigned char*, __m256 scale, __m256i dot, __m256 x_scale, const int32_t* x_sum, __m256 sum) {
    const __m256i centred = _mm256_sub_epi32(dot, _mm256_slli_epi32(_mm256_set1_epi32(*x_sum), 3));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(centred), _mm256_mul_ps(scale, x_scale), sum);
  }
};

struct Q2 {
  static constexpr int kBytes = 96;

  template <int kTokens>
  static inline void Dot(const unsigned char* block, const int8_t* codes, int64_t width, __m256i (&dot)[kTokens]) {
    const __m256i mask = _mm256_set1_epi8(3);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m256i packed = LoadVector(block + 32 + 32 * v);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m256i w = _mm256_and_si256(_mm256_srli_epi16(packed, 2 * i), mask);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const __m256i pairs = _mm256_maddubs_epi16(w, Group(codes + t * width + 8 * i + 4 * v));
          dot[t] = v + i == 0 ? pairs : _mm256_add_epi16(dot[t], pairs);
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) dot[t] = AddPairs(dot[t]);
  }

  static inline __m256 Add(const unsigned char* block, __m256 scale, __m256i dot, __m256 x_scale, const int32_t* x_sum,
                           __m256 sum) {
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, x_scale), sum);
    const __m256 offset = _mm256_mul_ps(LoadHalves(block + 16), x_scale);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_set1_epi32(*x_sum)), offset, sum);
  }
};

// One panel times tokens [token, token + kTokens).
template <class Block, int kTokens>
inline void BlockTile(const MatMulArguments& a, int panel, int token) {
  const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
  const unsigned char* block = a.weights + static_cast<int64_t>(panel) * a.blocks * Block::kBytes;
  const int8_t* codes = a.codes + token * width;
  const float* scales = a.scales + static_cast<int64_t>(token) * a.blocks;
  const int32_t* sums = a.sums + static_cast<int64_t>(token) * a.blocks;
  __m256 sum[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) sum[t] = _mm256_setzero_ps();
  for (int b = 0; b < a.blocks; ++b, block += Block::kBytes) {
    __m256i dot[kTokens];
    Block::template Dot<kTokens>(block, codes + kColumns * b, width, dot);
    const __m256 scale = LoadHalves(block);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = static_cast<int64_t>(t) * a.blocks + b;
      sum[t] = Block::Add(block, scale, dot[t], Broadcast(scales + at), sums + at, sum[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    StoreRows(a.output + (token + t) * a.output_stride + panel * kRows, a.rows - panel * kRows, sum[t]);
  }
}

template <class Block>
void BlockMatMul(const MatMulArguments& a, int begin, int end) {
  for (int panel = begin; panel < end; ++panel) {
    int token = 0;
    for (; token + 4 <= a.tokens; token += 4) BlockTile<Block, 4>(a, panel, token);
    if (token + 2 <= a.tokens) {
      BlockTile<Block, 2>(a, panel, token);
      token += 2;
    }
    if (token < a.tokens) BlockTile<Block, 1>(a, panel, token);
  }
}

struct F32 {
  static constexpr int kBytes = 4;
  static inline __m256 Load(const unsigned char* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static inline __m256 Load(const unsigned char* at) { return LoadHalves(at); }
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
    for (int t = 0; t < kTokens; ++t) StoreRows(a.output + (token + t) * a.output_stride + row, a.rows - row, sum[p][t]);
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
void MatMulQ8(const MatMulArguments& a, int begin, int end) { BlockMatMul<Q8>(a, begin, end); }
void MatMulQ4(const MatMulArguments& a, int begin, int end) { BlockMatMul<Q4>(a, begin, end); }
void MatMulQ2(const MatMulArguments& a, int begin, int end) { BlockMatMul<Q2>(a, begin, end); }

}  // namespace moed::avx2
