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

// A code of 8 bits is two of 4: code + 128 = low + 16 high.
struct TwoNibbles {
  __m256i low;
  __m256i high;
};

struct Avx2 : Vectors256 {
  static constexpr int kBlocksAhead = 2;  // products take so many instructions that loads far ahead do not start by themselves

  // 16-bit sums, which stay below 2^15 over so many steps, a power of two: each adds two products of at most kLargest * 127.
  static constexpr int SafeSteps(int largest, int steps) {
    while (steps * 2 * largest * 127 >= 1 << 15) steps /= 2;
    return steps;
  }

  // Codes whose sums over a part are safe.
  template <bool kBiased, int kLargest, int kSteps>
  struct Accumulator {
    Ints pairs;
    static inline Ints Operand(Ints w) { return w; }
    inline void Start(const unsigned char*) { pairs = _mm256_setzero_si256(); }
    inline void Add(Ints w, Ints x, int) { pairs = InOrder(_mm256_add_epi16(pairs, _mm256_maddubs_epi16(w, x))); }
    inline Ints Sum(const unsigned char* term) const {
      const Ints dot = AddPairs(pairs, 1);
      return kBiased ? _mm256_add_epi32(dot, Group(term)) : dot;
    }
  };

  template <bool kBiased, int kLargest, int kSteps>
  requires(SafeSteps(kLargest, kSteps) < kSteps && kLargest < 255) struct Accumulator<kBiased, kLargest, kSteps> {
    static constexpr int kSafe = SafeSteps(kLargest, kSteps);
    Ints pairs;
    Ints dot;
    static inline Ints Operand(Ints w) { return w; }
    inline void Start(const unsigned char* term) { dot = kBiased ? Group(term) : _mm256_setzero_si256(); }
    inline void Add(Ints w, Ints x, int step) {
      const Ints products = _mm256_maddubs_epi16(w, x);
      pairs = step % kSafe == 0 ? products : InOrder(_mm256_add_epi16(pairs, products));
      if (step % kSafe == kSafe - 1) dot = _mm256_add_epi32(dot, AddPairs(pairs, 1));
    }
    inline Ints Sum(const unsigned char*) const { return dot; }
  };

  template <bool kBiased, int kSteps>
  struct Accumulator<kBiased, 255, kSteps> {
    Accumulator<false, 15, kSteps> low;
    Accumulator<false, 15, kSteps> high;
    static inline TwoNibbles Operand(Ints w) { return {And(w, 15), And(ShiftRight(w, 4), 15)}; }
    // Two tables save taking their entries apart.
    template <class Table>
    static inline TwoNibbles FromTable(Ints a) {
      return {Lookup(Table::kLowNibbles.bytes, a), Lookup(Table::kHighNibbles.bytes, a)};
    }
    inline void Start(const unsigned char* term) {
      low.Start(term);
      high.Start(term);
    }
    inline void Add(const TwoNibbles& w, Ints x, int step) {
      low.Add(w.low, x, step);
      high.Add(w.high, x, step);
    }
    inline Ints Sum(const unsigned char* term) const {
      const Ints dot = _mm256_add_epi32(AddPairs(low.pairs, 1), AddPairs(high.pairs, 16));
      return kBiased ? _mm256_add_epi32(dot, Group(term)) : dot;
    }
  };
};

// Where a sum takes two registers, tiles have fewer.
template <class Format>
constexpr bool kTwoRegisters = false;
template <class Format>
requires(!Format::kFloats) constexpr bool kTwoRegisters<Format> = Avx2::SafeSteps(Format::kLargest,
                                                                                  kSteps / Format::kParts) < kSteps
                                                                                                                 / Format::kParts;

struct Avx2Products {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    using Format = VectorFormat<kFormat, Avx2>;
    if constexpr (kTwoRegisters<Format>) {
      MatMulFor<Format, 1, 6>(a, begin, end);
    } else {
      MatMulFor<Format, 2, 4>(a, begin, end);
    }
  }
};

}  // namespace

const KernelTable kAvx2Kernels = avx2::Table(kProducts<Avx2Products>);

}  // namespace moed
