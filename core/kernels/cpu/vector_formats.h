// The weight formats over any vectors: a row for each, and what the instruction set's vectors (Isa) make of it.
//   floats  widened, column by column, the lane of row r holding row r (float_matmul.h): Column() is column k + i of a panel,
//   which
//           is in the same eight as column k; panels are PanelBytes(width) apart
//   blocks  unsigned codes times signed activation codes: Weights() is step s's vector, the lanes of row r holding the codes of
//           its columns 4 s to 4 s + 3 of the 32 columns b of a block (block_matmul.h)
// Layouts: quant/block_layouts.h.
#pragma once

#include "core/kernels/cpu/block_matmul.h"
#include "core/kernels/cpu/float_matmul.h"
#include "core/quant/fp8.h"
#include "core/quant/level_tables.h"

namespace moed {
namespace {

// Columns without gaps, kElementBytes for each row.
template <int kElementBytes>
struct PlainColumns {
  static constexpr bool kFloats = true;
  static constexpr int kBytes = kElementBytes;
  static constexpr int64_t PanelBytes(int64_t width) { return width * kRows * kBytes; }
  static constexpr int64_t At(int64_t k, int i) { return (k + i) * kRows * kBytes; }
};

template <class AnyIsa>
struct F32 : PlainColumns<4> {
  using Isa = AnyIsa;
  static inline typename Isa::Floats Column(const unsigned char* panel, int64_t k, int i, int64_t panel_bytes) {
    return Isa::LoadFloats(panel + At(k, i), panel_bytes);
  }
};

template <class AnyIsa>
struct F16 : PlainColumns<2> {
  using Isa = AnyIsa;
  static inline typename Isa::Floats Column(const unsigned char* panel, int64_t k, int i, int64_t panel_bytes) {
    return Isa::LoadHalves(panel + At(k, i), panel_bytes);
  }
};

template <class AnyIsa>
struct BF16 : PlainColumns<2> {
  using Isa = AnyIsa;
  static inline typename Isa::Floats Column(const unsigned char* panel, int64_t k, int i, int64_t panel_bytes) {
    return Isa::LoadUpperHalves(panel + At(k, i), panel_bytes);
  }
};

template <class AnyIsa>
struct Fp8 {
  using Isa = AnyIsa;
  static constexpr bool kFloats = true;
  static constexpr int kBytes = 1;
  static constexpr int64_t PanelBytes(int64_t width) { return quant::Fp8Header(width); }
  static inline typename Isa::Floats Column(const unsigned char* panel, int64_t k, int i, int64_t panel_bytes) {
    const auto codes = Isa::LoadBytes(panel + quant::Fp8Codes(k) + kRows * i, panel_bytes);
    return Isa::Multiply(Isa::E4m3(codes), Isa::LoadFloats(panel + quant::Fp8Header(k), panel_bytes));
  }
};

// Codes: step s's vector, the lanes of row r holding four codes with kZero added, at most kLargest.
struct CodesOf8Bits {  // two's complement with the sign bit turned over
  static constexpr int kBytes = 256;
  static constexpr int kZero = 128;
  static constexpr int kLargest = 255;
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    return Isa::Xor(Isa::Load(codes + 32 * step, panel_bytes), 0x80);
  }
};
template <int kZeroCode>
struct CodesOf4Bits {
  static constexpr int kBytes = 128;
  static constexpr int kZero = kZeroCode;
  static constexpr int kLargest = 15;
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    const auto both = Isa::Load(codes + 32 * (step % 4), panel_bytes);
    return Isa::And(step < 4 ? both : Isa::ShiftRight(both, 4), 15);
  }
};
struct CodesOf2Bits {
  static constexpr int kBytes = 64;
  static constexpr int kZero = 0;
  static constexpr int kLargest = 3;
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    const auto four = Isa::Load(codes + 32 * (step % 2), panel_bytes);
    return Isa::And(Isa::ShiftRight(four, 2 * (step / 2)), 3);
  }
};
// More bits above those of Low, in the plane behind them: one, or two.
template <class Isa>
inline typename Isa::Ints ShiftedTo(typename Isa::Ints a, int from, int to) {
  return from < to ? Isa::ShiftLeft(a, to - from) : Isa::ShiftRight(a, from - to);
}
template <class Low, int kAt, int kZeroCode = 0>
struct OneMoreBit {
  static constexpr int kBytes = Low::kBytes + 32;
  static constexpr int kZero = kZeroCode;
  static constexpr int kLargest = 2 * Low::kLargest + 1;
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    const auto bits = ShiftedTo<Isa>(Isa::Load(codes + Low::kBytes, panel_bytes), step, kAt);
    return Isa::Or(Low::template Weights<Isa>(codes, panel_bytes, step), Isa::And(bits, 1 << kAt));
  }
};
template <class Low, int kAt, int kZeroCode>
struct TwoMoreBits {
  static constexpr int kBytes = Low::kBytes + 64;
  static constexpr int kZero = kZeroCode;
  static constexpr int kLargest = 4 * Low::kLargest + 3;
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    const auto bits = ShiftedTo<Isa>(Isa::Load(codes + Low::kBytes + 32 * (step % 2), panel_bytes), 2 * (step / 2), kAt);
    return Isa::Or(Low::template Weights<Isa>(codes, panel_bytes, step), Isa::And(bits, 3 << kAt));
  }
};
// Entries of a table of 16, of which the lowest is -kZeroEntry or more.
struct Entries {
  int8_t bytes[16];
};
constexpr Entries Raised(const int8_t (&levels)[16], int zero) {
  Entries raised{};
  for (int i = 0; i < 16; ++i) raised.bytes[i] = static_cast<int8_t>(static_cast<uint8_t>(levels[i] + zero));
  return raised;
}
constexpr Entries NibblesOf(const Entries& entries, int shift) {
  Entries nibbles{};
  for (int i = 0; i < 16; ++i) nibbles.bytes[i] = static_cast<int8_t>(static_cast<uint8_t>(entries.bytes[i]) >> shift & 15);
  return nibbles;
}
template <const int8_t (&kLevels)[16], int kZeroEntry, int kLargestEntry>
struct TableCodes {
  static constexpr int kBytes = 128;
  static constexpr int kZero = kZeroEntry;
  static constexpr int kLargest = kLargestEntry;
  static constexpr Entries kEntries = Raised(kLevels, kZeroEntry);
  static constexpr Entries kLowNibbles = NibblesOf(kEntries, 0);
  static constexpr Entries kHighNibbles = NibblesOf(kEntries, 4);
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    return Isa::Lookup(kEntries.bytes, CodesOf4Bits<0>::Weights<Isa>(codes, panel_bytes, step));
  }
};
// Magnitudes m of the grid, odd and below 16: 16 + m is m ^ 16, 16 - m is m ^ 14.
struct GridCodes {
  static constexpr int kBytes = 104;
  static constexpr int kZero = 16;
  static constexpr int kLargest = 31;
  static constexpr int8_t kSigns[16] = {16, 14};
  template <class Isa>
  static inline typename Isa::Ints Weights(const unsigned char* codes, int64_t panel_bytes, int step) {
    const auto ninth = Isa::And(Isa::ShiftRight(Isa::LoadBytes(codes + 64, panel_bytes), step), 1);
    const auto row = Isa::Or(Isa::LoadBytes(codes + 8 * step, panel_bytes), Isa::ShiftLeft(ninth, 8));
    const auto sign = Isa::And(Isa::ShiftRight(Isa::Load(codes + 72, panel_bytes), step), 1);
    return Isa::Xor(Isa::Gather(kIq3sGrid.rows, row), Isa::Lookup(kSigns, sign));
  }
};

// Scales at the head of a block; of part kPart of its columns 32 b to 32 b + 31.
template <bool kOffsets>
struct HalfScales {
  static constexpr int kHeaderBytes = kOffsets ? 32 : 16;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = kOffsets;
  template <class Isa>
  static inline typename Isa::Floats Scale(const unsigned char* block, int64_t panel_bytes, int, int) {
    return Isa::LoadHalves(block, panel_bytes);
  }
  template <class Isa>
  static inline typename Isa::Floats Offset(const unsigned char* block, int64_t panel_bytes, int, int) {
    return Isa::LoadHalves(block + 16, panel_bytes);
  }
};
// d, and -(d z) with a byte z.
template <int kBlocksOfScale>
struct ZeroPoints {
  static constexpr int kHeaderBytes = 24;
  static constexpr int kBlocks = kBlocksOfScale;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = true;
  template <class Isa>
  static inline typename Isa::Floats Scale(const unsigned char* block, int64_t panel_bytes, int, int) {
    return Isa::LoadHalves(block, panel_bytes);
  }
  template <class Isa>
  static inline typename Isa::Floats Offset(const unsigned char* block, int64_t panel_bytes, int, int) {
    const auto zero = Isa::ToFloats(Isa::LoadBytes(block + 16, panel_bytes));
    return Isa::Negative(Isa::Multiply(Isa::LoadHalves(block, panel_bytes), zero));
  }
};
struct ExponentScales {
  static constexpr int kHeaderBytes = 8;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = false;
  template <class Isa>
  static inline typename Isa::Floats Scale(const unsigned char* block, int64_t panel_bytes, int, int) {
    return Isa::Exponents(Isa::LoadBytes(block, panel_bytes));
  }
};

// Number `part` of kBits bits of every row; of six bits: the low four of kParts numbers, then the high two.
template <int kBits, class Isa>
inline typename Isa::Ints PartBits(const unsigned char* numbers, int64_t panel_bytes, int part) {
  const auto bytes = Isa::LoadBytes(numbers + 8 * (part * kBits / 8), panel_bytes);
  return Isa::And(Isa::ShiftRight(bytes, part * kBits % 8), (1 << kBits) - 1);
}
template <int kParts, class Isa>
inline typename Isa::Ints SixBits(const unsigned char* numbers, int64_t panel_bytes, int part) {
  const auto high = PartBits<2, Isa>(numbers + 4 * kParts, panel_bytes, part);
  return Isa::Or(PartBits<4, Isa>(numbers, panel_bytes, part), Isa::ShiftLeft(high, 4));
}

// d n and -(m s) with n and s of four bits every 16 columns, or of six bits every 32.
template <int kPartsOfBlock>
struct LinesOfParts {
  static constexpr int kNumberBytes = kPartsOfBlock == 2 ? 64 : 48;
  static constexpr int kHeaderBytes = 32 + 2 * kNumberBytes;
  static constexpr int kBlocks = 8;
  static constexpr int kParts = kPartsOfBlock;
  static constexpr bool kHasOffsets = true;
  template <class Isa>
  static inline typename Isa::Ints Number(const unsigned char* numbers, int64_t panel_bytes, int b, int part) {
    if constexpr (kParts == 2) return PartBits<4, Isa>(numbers, panel_bytes, 2 * b + part);
    return SixBits<8, Isa>(numbers, panel_bytes, b);
  }
  template <class Isa>
  static inline typename Isa::Floats Scale(const unsigned char* block, int64_t panel_bytes, int b, int part) {
    return Isa::Multiply(Isa::LoadHalves(block, panel_bytes), Isa::ToFloats(Number<Isa>(block + 32, panel_bytes, b, part)));
  }
  template <class Isa>
  static inline typename Isa::Floats Offset(const unsigned char* block, int64_t panel_bytes, int b, int part) {
    const auto number = Isa::ToFloats(Number<Isa>(block + 32 + kNumberBytes, panel_bytes, b, part));
    return Isa::Negative(Isa::Multiply(Isa::LoadHalves(block + 16, panel_bytes), number));
  }
};
// d times a number of the part: n - 32 of six bits, int8 n, or 2 n + 1 of four.
struct SixBitNumbers {
  static constexpr int kBytes(int parts) { return 6 * parts; }
  template <int kParts, class Isa>
  static inline typename Isa::Floats Get(const unsigned char* numbers, int64_t panel_bytes, int part) {
    return Isa::Add(Isa::ToFloats(SixBits<kParts, Isa>(numbers, panel_bytes, part)), Isa::Splat(-32));
  }
};
struct SignedNumbers {
  static constexpr int kBytes(int parts) { return 8 * parts; }
  template <int, class Isa>
  static inline typename Isa::Floats Get(const unsigned char* numbers, int64_t panel_bytes, int part) {
    return Isa::ToFloats(Isa::LoadSignedBytes(numbers + 8 * part, panel_bytes));
  }
};
struct OddNumbers {
  static constexpr int kBytes(int parts) { return 4 * parts; }
  template <int, class Isa>
  static inline typename Isa::Floats Get(const unsigned char* numbers, int64_t panel_bytes, int part) {
    const auto number = PartBits<4, Isa>(numbers, panel_bytes, part);
    return Isa::Add(Isa::ToFloats(Isa::ShiftLeft(number, 1)), Isa::Splat(1));
  }
};
template <class Numbers, int kPartsOfBlock>
struct ScalesOfParts {
  static constexpr int kBlocks = 8;
  static constexpr int kParts = kPartsOfBlock;
  static constexpr int kHeaderBytes = 16 + Numbers::kBytes(kBlocks * kParts);
  static constexpr bool kHasOffsets = false;
  template <class Isa>
  static inline typename Isa::Floats Scale(const unsigned char* block, int64_t panel_bytes, int b, int part) {
    const auto number = Numbers::template Get<kBlocks * kParts, Isa>(block + 16, panel_bytes, kParts * b + part);
    return Isa::Multiply(Isa::LoadHalves(block, panel_bytes), number);
  }
};

// A format of codes and scales.
template <class AnyIsa, class Codes, class Scales>
struct Block {
  using Isa = AnyIsa;
  static constexpr bool kFloats = false;
  static constexpr bool kHasOffsets = Scales::kHasOffsets;
  static constexpr int kBlocks = Scales::kBlocks;
  static constexpr int kParts = Scales::kParts;
  static constexpr int kLargest = Codes::kLargest;
  static constexpr int kBytes = Scales::kHeaderBytes + kBlocks * Codes::kBytes;
  static_assert(!kHasOffsets || Codes::kZero == 0);
  using Accumulator = typename Isa::template Accumulator<!kHasOffsets, kLargest, kSteps / kParts>;

  static inline int32_t Term(int32_t sum) {
    return kHasOffsets ? __builtin_bit_cast(int32_t, static_cast<float>(sum)) : -Codes::kZero * sum;
  }
  static inline auto Weights(const unsigned char* block, int64_t panel_bytes, int b, int step) {
    const unsigned char* codes = block + Scales::kHeaderBytes + Codes::kBytes * b;
    if constexpr (requires(typename Isa::Ints a) {
                    Accumulator::template FromTable<Codes>(a);
                    Codes::kLowNibbles;
                  }) {
      return Accumulator::template FromTable<Codes>(CodesOf4Bits<0>::Weights<Isa>(codes, panel_bytes, step));
    } else {
      return Accumulator::Operand(Codes::template Weights<Isa>(codes, panel_bytes, step));
    }
  }
  static inline typename Isa::Floats Scale(const unsigned char* block, int64_t panel_bytes, int b, int part) {
    return Scales::template Scale<Isa>(block, panel_bytes, b, part);
  }
  static inline typename Isa::Floats Offset(const unsigned char* block, int64_t panel_bytes, int b, int part) {
    return Scales::template Offset<Isa>(block, panel_bytes, b, part);
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
struct VectorFormat<FormatId::kQ8, Isa> : Block<Isa, CodesOf8Bits, HalfScales<false>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4, Isa> : Block<Isa, CodesOf4Bits<8>, HalfScales<false>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ2, Isa> : Block<Isa, CodesOf2Bits, HalfScales<true>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4A, Isa> : Block<Isa, CodesOf4Bits<0>, HalfScales<true>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ3, Isa> : Block<Isa, OneMoreBit<CodesOf2Bits, 2>, HalfScales<true>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ5_0, Isa> : Block<Isa, OneMoreBit<CodesOf4Bits<0>, 4, 16>, HalfScales<false>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ5_1, Isa> : Block<Isa, OneMoreBit<CodesOf4Bits<0>, 4>, HalfScales<true>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ2K, Isa> : Block<Isa, CodesOf2Bits, LinesOfParts<2>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ3K, Isa> : Block<Isa, OneMoreBit<CodesOf2Bits, 2, 4>, ScalesOfParts<SixBitNumbers, 2>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4K, Isa> : Block<Isa, CodesOf4Bits<0>, LinesOfParts<1>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ5K, Isa> : Block<Isa, OneMoreBit<CodesOf4Bits<0>, 4>, LinesOfParts<1>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ6K, Isa> : Block<Isa, TwoMoreBits<CodesOf4Bits<0>, 4, 32>, ScalesOfParts<SignedNumbers, 2>> {};
template <class Isa>
struct VectorFormat<FormatId::kIq4Nl, Isa> : Block<Isa, TableCodes<kIq4Levels, 128, 255>, HalfScales<false>> {};
template <class Isa>
struct VectorFormat<FormatId::kIq4Xs, Isa> : Block<Isa, TableCodes<kIq4Levels, 128, 255>, ScalesOfParts<SixBitNumbers, 1>> {};
template <class Isa>
struct VectorFormat<FormatId::kIq3S, Isa> : Block<Isa, GridCodes, ScalesOfParts<OddNumbers, 1>> {};
template <class Isa>
struct VectorFormat<FormatId::kMxfp4, Isa> : Block<Isa, TableCodes<kMxfp4Levels, 12, 24>, ExponentScales> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4Z, Isa> : Block<Isa, CodesOf4Bits<0>, ZeroPoints<1>> {};
template <class Isa>
struct VectorFormat<FormatId::kQ4Z128, Isa> : Block<Isa, CodesOf4Bits<0>, ZeroPoints<4>> {};
template <class Isa>
struct VectorFormat<FormatId::kFp8, Isa> : Fp8<Isa> {};

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
