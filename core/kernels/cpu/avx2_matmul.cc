// Products with packed matrices by the 16-bit sums of unsigned times signed bytes.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/vector_formats.h"
#include "core/kernels/cpu/vectors256.h"
#include "core/kernels/products.h"

namespace moed {
namespace {

// Keeps the compiler from collecting products to add them as a tree, for which the registers do not suffice.
inline __m256i InOrder(__m256i x) {
  asm("" : "+x"(x));
  return x;
}

inline __m256i AddPairs(__m256i pairs, int16_t factor) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor)); }

// Codes up to 15: the 16-bit sum of a block's 16 products of at most 15 * 127 stays below 2^15.
struct Avx2 : Vectors256 {
  static constexpr int kBlocksAhead = 2;  // products take so many instructions that loads far ahead do not start by themselves
  template <bool kBiased>
  struct Accumulator {
    Ints pairs;
    inline void Start(const unsigned char*) { pairs = _mm256_setzero_si256(); }
    inline void Add(Ints w, Ints x) { pairs = InOrder(_mm256_add_epi16(pairs, _mm256_maddubs_epi16(w, x))); }
    inline Ints Sum(const unsigned char* term) const {
      const Ints dot = AddPairs(pairs, 1);
      return kBiased ? _mm256_add_epi32(dot, Group(term)) : dot;
    }
  };
};

// A code of 8 bits is two of 4: code + 128 = low + 16 high.
struct TwoNibbles {
  __m256i low;
  __m256i high;
};

struct NibbleQ8 : UnsignedQ8<Avx2> {
  struct Accumulator {
    Avx2::Accumulator<false> low;
    Avx2::Accumulator<false> high;
    inline void Start(const unsigned char* term) {
      low.Start(term);
      high.Start(term);
    }
    inline void Add(const TwoNibbles& w, __m256i x) {
      low.Add(w.low, x);
      high.Add(w.high, x);
    }
    inline __m256i Sum(const unsigned char* term) const {
      const __m256i dot = _mm256_add_epi32(AddPairs(low.pairs, 1), AddPairs(high.pairs, 16));
      return _mm256_add_epi32(dot, Avx2::Group(term));
    }
  };
  static inline TwoNibbles Weights(const unsigned char* block, int64_t panel_bytes, int step) {
    const __m256i codes = UnsignedQ8::Weights(block, panel_bytes, step);
    return {Avx2::And(codes, 15), Avx2::And(Avx2::ShiftRight(codes, 4), 15)};
  }
};

struct Avx2Products {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    if constexpr (kFormat == FormatId::kQ8) {
      MatMulFor<NibbleQ8, 1, 6>(a, begin, end);
    } else {
      MatMulFor<VectorFormat<kFormat, Avx2>, 2, 4>(a, begin, end);
    }
  }
};

}  // namespace

const KernelTable kAvx2Kernels = avx2::Table(kProducts<Avx2Products>);

}  // namespace moed
