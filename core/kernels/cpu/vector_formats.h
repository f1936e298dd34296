// The weight formats over any vectors: a row for each, and what the instruction set's vectors (Isa) make of it.
//   floats  widened, column by column, the lane of row r holding row r: FloatFormat (float_matmul.h)
//   blocks  unsigned codes times signed activation codes: Weights() is step s's vector, the lanes of row r holding the codes of
//           its columns 4 s to 4 s + 3 (block_matmul.h)
#pragma once

#include "core/kernels/cpu/block_matmul.h"
#include "core/kernels/cpu/float_matmul.h"

namespace moed {
namespace {

template <class AnyIsa>
struct F32 {
  using Isa = AnyIsa;
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 4;
  static inline typename Isa::Floats Column(const unsigned char* at, int64_t panel_bytes) {
    return Isa::LoadFloats(at, panel_bytes);
  }
};

template <class AnyIsa>
struct F16 {
  using Isa = AnyIsa;
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 2;
  static inline typename Isa::Floats Column(const unsigned char* at, int64_t panel_bytes) {
    return Isa::LoadHalves(at, panel_bytes);
  }
};

template <class AnyIsa>
struct BF16 {
  using Isa = AnyIsa;
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 2;
  static inline typename Isa::Floats Column(const unsigned char* at, int64_t panel_bytes) {
    return Isa::LoadUpperHalves(at, panel_bytes);
  }
};

// Codes with 128 added, which the term takes away: their two's complement with the sign bit turned over.
template <class AnyIsa>
struct UnsignedQ8 {
  using Isa = AnyIsa;
  using Accumulator = typename Isa::template Accumulator<true>;
  static constexpr bool kFloats = false;
  static constexpr int kBytes = 272;
  static constexpr bool kHasOffsets = false;
  static inline int32_t Term(int32_t sum) { return -128 * sum; }
  static inline typename Isa::Ints Weights(const unsigned char* block, int64_t panel_bytes, int step) {
    return Isa::Xor(Isa::Load(block + 16 + 32 * step, panel_bytes), 0x80);
  }
};

template <class AnyIsa>
struct Q4 {
  using Isa = AnyIsa;
  using Accumulator = typename Isa::template Accumulator<true>;
  static constexpr bool kFloats = false;
  static constexpr int kBytes = 144;
  static constexpr bool kHasOffsets = false;
  static inline int32_t Term(int32_t sum) { return -8 * sum; }
  static inline typename Isa::Ints Weights(const unsigned char* block, int64_t panel_bytes, int step) {
    const auto both = Isa::Load(block + 16 + 32 * (step % 4), panel_bytes);
    return Isa::And(step < 4 ? both : Isa::ShiftRight(both, 4), 15);
  }
};

template <class AnyIsa, int kCodeBytes>
struct WithOffsets {
  using Isa = AnyIsa;
  using Accumulator = typename Isa::template Accumulator<false>;
  static constexpr bool kFloats = false;
  static constexpr int kBytes = 32 + kCodeBytes;
  static constexpr bool kHasOffsets = true;
  static inline int32_t Term(int32_t sum) { return __builtin_bit_cast(int32_t, static_cast<float>(sum)); }
};

template <class AnyIsa>
struct Q2 : WithOffsets<AnyIsa, 64> {
  using Isa = AnyIsa;
  static inline typename Isa::Ints Weights(const unsigned char* block, int64_t panel_bytes, int step) {
    const auto four = Isa::Load(block + 32 + 32 * (step % 2), panel_bytes);
    return Isa::And(Isa::ShiftRight(four, 2 * (step / 2)), 3);
  }
};

// As q4, behind scales and offsets.
template <class AnyIsa>
struct Q4A : WithOffsets<AnyIsa, 128> {
  using Isa = AnyIsa;
  static inline typename Isa::Ints Weights(const unsigned char* block, int64_t panel_bytes, int step) {
    return Q4<Isa>::Weights(block + 16, panel_bytes, step);
  }
};

// As q2, then a vector with the third bits.
template <class AnyIsa>
struct Q3 : WithOffsets<AnyIsa, 96> {
  using Isa = AnyIsa;
  static inline typename Isa::Ints Weights(const unsigned char* block, int64_t panel_bytes, int step) {
    const auto thirds = Isa::Load(block + 96, panel_bytes);
    const auto third = step < 2 ? Isa::ShiftLeft(thirds, 2 - step) : Isa::ShiftRight(thirds, step - 2);
    return Isa::Or(Q2<Isa>::Weights(block, panel_bytes, step), Isa::And(third, 4));
  }
};

// The rows of the formats.
template <FormatId kFormat, class Isa>
struct VectorFormat;
template <class Isa>
struct VectorFormat<FormatId::kF32, Isa> : F32<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kF16, Isa> : F16<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kBF16, Isa> : BF16<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kQ8, Isa> : UnsignedQ8<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4, Isa> : Q4<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kQ2, Isa> : Q2<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4A, Isa> : Q4A<Isa> {};
template <class Isa>
struct VectorFormat<FormatId::kQ3, Isa> : Q3<Isa> {};

// Wide: a format in the widest vectors; OnePanel: in vectors of one panel. Tiles of kVectors vectors times kTokens tokens.
template <class Wide, int kVectors, int kTokens, class OnePanel = Wide>
inline void MatMulFor(const MatMulArguments& a, int begin, int end) {
  if constexpr (Wide::kFloats) {
    FloatMatMul<Wide, OnePanel>(a, begin, end);
  } else {
    BlockMatMulFor<Wide, kVectors, kTokens, OnePanel>(a, begin, end);
  }
}

}  // namespace
}  // namespace moed
