// The weight formats over any vectors: a row for each, and what the instruction set's vectors (Isa) make of it.
//   floats  widened, column by column, the lane of row r holding row r (float_matmul.h): Column() is column k + i of a panel,
//           which is in the same eight as column k; panels are PanelBytes(width) apart
//   blocks  unsigned codes times signed activation codes: Weights() is step s's vector, the lanes of row r holding the codes of
//           its columns 4 s to 4 s + 3 of the 32 columns b of a block, made of what a Load() brought (block_matmul.h); Header has
//           the scales (block_scales.h)
// Layouts: quant/block_layouts.h.
#pragma once

#include "core/kernels/cpu/block_matmul.h"
#include "core/kernels/cpu/block_scales.h"
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

// Codes: step s's vector, the lanes of row r holding four codes with kZero added, at most kLargest. What Load(l) brings serves
// the steps l, l + kLoads, l + 2 kLoads and so on, of the eight.
struct CodesOf8Bits {  // two's complement with the sign bit turned over
  static constexpr int kBytes = 256;
  static constexpr int kZero = 128;
  static constexpr int kLargest = 255;
  static constexpr int kLoads = 8;
  template <class Isa>
  static inline typename Isa::Ints Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return Isa::Load(codes + 32 * load, panel_bytes);
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(typename Isa::Ints loaded, int) {
    return Isa::Xor(loaded, 0x80);
  }
};
template <int kZeroCode>
struct CodesOf4Bits {
  static constexpr int kBytes = 128;
  static constexpr int kZero = kZeroCode;
  static constexpr int kLargest = 15;
  static constexpr int kLoads = 4;
  template <class Isa>
  static inline typename Isa::Ints Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return Isa::Once(Isa::Load(codes + 32 * load, panel_bytes));
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(typename Isa::Ints both, int step) {
    return Isa::And(step < 4 ? both : Isa::ShiftRight(both, 4), 15);
  }
};
struct CodesOf2Bits {
  static constexpr int kBytes = 64;
  static constexpr int kZero = 0;
  static constexpr int kLargest = 3;
  static constexpr int kLoads = 2;
  template <class Isa>
  static inline typename Isa::Ints Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return Isa::Once(Isa::Load(codes + 32 * load, panel_bytes));
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(typename Isa::Ints four, int step) {
    return Isa::And(Isa::ShiftRight(four, 2 * (step / 2)), 3);
  }
};
// More bits above those of Low, in the plane behind them: one, or two.
template <class Isa>
inline typename Isa::Ints ShiftedTo(typename Isa::Ints a, int from, int to) {
  return from < to ? Isa::ShiftLeft(a, to - from) : Isa::ShiftRight(a, from - to);
}
template <class Isa>
struct LowAndMore {
  typename Isa::Ints low;
  typename Isa::Ints more;
};
template <class Low, int kAt, int kZeroCode = 0>
struct OneMoreBit {
  static constexpr int kBytes = Low::kBytes + 32;
  static constexpr int kZero = kZeroCode;
  static constexpr int kLargest = 2 * Low::kLargest + 1;
  static constexpr int kLoads = Low::kLoads;
  template <class Isa>
  static inline LowAndMore<Isa> Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return {Low::template Load<Isa>(codes, panel_bytes, load), Isa::Once(Isa::Load(codes + Low::kBytes, panel_bytes))};
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(const LowAndMore<Isa>& loaded, int step) {
    const auto bits = ShiftedTo<Isa>(loaded.more, step, kAt);
    return Isa::Or(Low::template Weights<Isa>(loaded.low, step), Isa::And(bits, 1 << kAt));
  }
};
template <class Low, int kAt, int kZeroCode>
struct TwoMoreBits {
  static constexpr int kBytes = Low::kBytes + 64;
  static constexpr int kZero = kZeroCode;
  static constexpr int kLargest = 4 * Low::kLargest + 3;
  static constexpr int kLoads = Low::kLoads;
  static_assert(kLoads % 2 == 0);
  template <class Isa>
  static inline LowAndMore<Isa> Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return {Low::template Load<Isa>(codes, panel_bytes, load),
            Isa::Once(Isa::Load(codes + Low::kBytes + 32 * (load % 2), panel_bytes))};
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(const LowAndMore<Isa>& loaded, int step) {
    const auto bits = ShiftedTo<Isa>(loaded.more, 2 * (step / 2), kAt);
    return Isa::Or(Low::template Weights<Isa>(loaded.low, step), Isa::And(bits, 3 << kAt));
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
  static constexpr int kLoads = 4;
  static constexpr Entries kEntries = Raised(kLevels, kZeroEntry);
  static constexpr Entries kLowNibbles = NibblesOf(kEntries, 0);
  static constexpr Entries kHighNibbles = NibblesOf(kEntries, 4);
  template <class Isa>
  static inline typename Isa::Ints Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return CodesOf4Bits<0>::Load<Isa>(codes, panel_bytes, load);
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(typename Isa::Ints both, int step) {
    return Isa::Lookup(kEntries.bytes, CodesOf4Bits<0>::Weights<Isa>(both, step));
  }
};
// Magnitudes m of the grid, odd and below 16: 16 + m is m ^ 16, 16 - m is m ^ 14.
struct GridCodes {
  static constexpr int kBytes = 104;
  static constexpr int kZero = 16;
  static constexpr int kLargest = 31;
  static constexpr int kLoads = 8;
  static constexpr int8_t kSigns[16] = {16, 14};
  template <class Isa>
  struct Loaded {
    typename Isa::Ints low;    // of the grid's row
    typename Isa::Ints ninth;  // bits of it, of all steps
    typename Isa::Ints signs;  // of all steps
  };
  template <class Isa>
  static inline Loaded<Isa> Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    return {Isa::LoadBytes(codes + 8 * load, panel_bytes), Isa::LoadBytes(codes + 64, panel_bytes),
            Isa::Load(codes + 72, panel_bytes)};
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(const Loaded<Isa>& loaded, int step) {
    const auto ninth = Isa::And(Isa::ShiftRight(loaded.ninth, step), 1);
    const auto row = Isa::Or(loaded.low, Isa::ShiftLeft(ninth, 8));
    const auto sign = Isa::And(Isa::ShiftRight(loaded.signs, step), 1);
    return Isa::Xor(Isa::Gather(kIq3sGrid.rows, row), Isa::Lookup(kSigns, sign));
  }
};

// Pairs of levels, see quant/pair_planes.h: steps s and 4 + s are pairs 4 s to 4 s + 3.
struct PairCodes {
  static constexpr int kBytes = 80;
  static constexpr int kZero = 0;
  static constexpr int kLargest = 6;
  static constexpr int kLoads = 4;
  static constexpr int8_t kTurns[16] = {0, kPairTurn};
  template <class Isa>
  struct Loaded {
    typename Isa::Ints n;
    typename Isa::Ints turned;  // bits, of all steps
  };
  template <class Isa>
  static inline Loaded<Isa> Load(const unsigned char* codes, int64_t panel_bytes, int load) {
    const auto both = Isa::Load(codes + 32 * (load % 2), panel_bytes);
    return {Isa::Once(Isa::And(load < 2 ? both : Isa::ShiftRight(both, 4), 15)), Isa::LoadHalfPlane(codes + 64, panel_bytes)};
  }
  template <class Isa>
  static inline typename Isa::Ints Weights(const Loaded<Isa>& loaded, int step) {
    if (step < 4) return Isa::Lookup(kPairFirst, loaded.n);
    const auto turned = Isa::And(Isa::ShiftRight(loaded.turned, step - 4), 1);
    return Isa::Xor(Isa::Lookup(kPairSecond, loaded.n), Isa::Lookup(kTurns, turned));
  }
};

// A format of codes and scales.
template <class AnyIsa, class Codes, class Scales>
struct Block {
  using Isa = AnyIsa;
  static constexpr bool kFloats = false;
  static constexpr bool kHasOffsets = Scales::kHasOffsets;
  static constexpr bool kSubtracted = Scales::kSubtracted;  // offsets are
  static constexpr int kBlocks = Scales::kBlocks;
  static constexpr int kParts = Scales::kParts;
  static constexpr int kZero = Codes::kZero;
  static constexpr int kLargest = Codes::kLargest;
  static constexpr int kLoads = Codes::kLoads;
  static constexpr int kBytes = Scales::kHeaderBytes + kBlocks * Codes::kBytes;
  static_assert(!kHasOffsets || Codes::kZero == 0);
  using Accumulator = typename Isa::template Accumulator<!kHasOffsets, kLargest, kSteps / kParts>;
  using Header = typename Scales::template Header<Isa>;

  static inline int32_t Term(int32_t sum) {
    return kHasOffsets ? __builtin_bit_cast(int32_t, static_cast<float>(sum)) : -Codes::kZero * sum;
  }
  static inline auto Load(const unsigned char* block, int64_t panel_bytes, int b, int load) {
    return Codes::template Load<Isa>(block + Scales::kHeaderBytes + Codes::kBytes * b, panel_bytes, load);
  }
  static inline auto Weights(const auto& loaded, int step) {
    if constexpr (requires(typename Isa::Ints a) {
                    Accumulator::template FromTable<Codes>(a);
                    Codes::kLowNibbles;
                  }) {
      return Accumulator::template FromTable<Codes>(CodesOf4Bits<0>::Weights<Isa>(loaded, step));
    } else {
      return Accumulator::Operand(Codes::template Weights<Isa>(loaded, step));
    }
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
template <class Isa>
struct VectorFormat<FormatId::kQ2S, Isa> : Block<Isa, CodesOf2Bits, ByteLines> {};
template <class Isa>
struct VectorFormat<FormatId::kQ2P, Isa> : Block<Isa, PairCodes, ByteLines> {};
template <class Isa>
struct VectorFormat<FormatId::kNvfp4, Isa> : Block<Isa, TableCodes<kMxfp4Levels, 12, 24>, FactorScales> {};

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
