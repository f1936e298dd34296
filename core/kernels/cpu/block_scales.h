// Scales at the head of a block of codes, and offsets, which are added or subtracted, over any vectors (Isa). Part p of a block
// is part p % kParts of its columns 32 (p / kParts) to 32 (p / kParts) + 31. Layouts: quant/block_layouts.h. Internal linkage,
// see block_matmul.h.
#pragma once

#include <stdint.h>

#include "core/quant/byte_scale.h"

namespace moed {
namespace {

template <class Isa>
struct BlockHeader {
  const unsigned char* block;
  int64_t panel_bytes;
  inline typename Isa::Floats Halves(int at) const { return Isa::LoadHalves(block + at, panel_bytes); }
};
template <bool kOffsets>
struct HalfScales {
  static constexpr int kHeaderBytes = kOffsets ? 32 : 16;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr bool kSubtracted = false;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    inline Header(const unsigned char* block, int64_t panel_bytes) : BlockHeader<Isa>{block, panel_bytes} {}
    inline typename Isa::Floats Scale(int) const { return this->Halves(0); }
    inline typename Isa::Floats Offset(int) const { return this->Halves(16); }
  };
};
// d, and d z with a byte z.
template <int kBlocksOfScale>
struct ZeroPoints {
  static constexpr int kHeaderBytes = 24;
  static constexpr int kBlocks = kBlocksOfScale;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = true;
  static constexpr bool kSubtracted = true;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    inline Header(const unsigned char* block, int64_t panel_bytes) : BlockHeader<Isa>{block, panel_bytes} {}
    inline typename Isa::Floats Scale(int) const { return this->Halves(0); }
    inline typename Isa::Floats Offset(int) const {
      return Isa::Multiply(this->Halves(0), Isa::ToFloats(Isa::LoadBytes(this->block + 16, this->panel_bytes)));
    }
  };
};
// d of a byte, and d n / 16 with an int8 n.
struct ByteLines {
  static constexpr int kHeaderBytes = 16;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = true;
  static constexpr bool kSubtracted = false;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    inline Header(const unsigned char* block, int64_t panel_bytes) : BlockHeader<Isa>{block, panel_bytes} {}
    inline typename Isa::Floats Scale(int) const { return Isa::ByteScales(Isa::LoadBytes(this->block, this->panel_bytes)); }
    inline typename Isa::Floats Offset(int part) const {
      const auto steps = Isa::ToFloats(Isa::LoadSignedBytes(this->block + 8, this->panel_bytes));
      return Isa::Multiply(Scale(part), Isa::Multiply(steps, Isa::Splat(quant::kOffsetStep)));
    }
  };
};
struct ExponentScales {
  static constexpr int kHeaderBytes = 8;
  static constexpr int kBlocks = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kSubtracted = false;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    inline Header(const unsigned char* block, int64_t panel_bytes) : BlockHeader<Isa>{block, panel_bytes} {}
    inline typename Isa::Floats Scale(int) const { return Isa::Exponents(Isa::LoadBytes(this->block, this->panel_bytes)); }
  };
};

// Numbers of e4m3 of every 16 columns, times what a factor and its rest are.
struct FactorScales {
  static constexpr int kHeaderBytes = 40;
  static constexpr int kBlocks = 2;
  static constexpr int kParts = 2;
  static constexpr bool kHasOffsets = false;
  static constexpr bool kSubtracted = false;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    typename Isa::Floats factor;
    typename Isa::Floats rest;
    inline Header(const unsigned char* block, int64_t panel_bytes)
        : BlockHeader<Isa>{block, panel_bytes},
          factor(Isa::BroadcastInPanel(block, panel_bytes)),
          rest(Isa::BroadcastInPanel(block + 4, panel_bytes)) {}
    inline typename Isa::Floats Scale(int part) const {
      const auto number = Isa::UnsignedE4m3(Isa::LoadBytes(this->block + 8 + 8 * part, this->panel_bytes));
      return Isa::MultiplyAdd(number, factor, Isa::Multiply(number, rest));
    }
  };
};

// The integers of kParts parts, of four or six bits each, brought to a byte each: part p's eight rows are a group, the even parts
// of eight before the odd ones. Of six bits: the low four of kParts numbers, then the high two.
template <int kParts, int kBits, class Isa>
struct PartIntegers {
  static constexpr int kVectorBytes = 32 * Isa::kPanels;
  alignas(kVectorBytes) unsigned char bytes[kParts / 8][2][kVectorBytes];

  inline PartIntegers(const unsigned char* numbers, int64_t panel_bytes) {
    for (int i = 0; i < kParts / 8; ++i) {
      const auto both = Isa::Load(numbers + 32 * i, panel_bytes);
      auto even = Isa::And(both, 15);
      auto odd = Isa::And(Isa::ShiftRight(both, 4), 15);
      if constexpr (kBits == 6) {  // a byte of it is of four parts
        const auto four = Isa::LoadTwice(numbers + 4 * kParts + 16 * i, panel_bytes);
        even = Isa::Or(even, Isa::ShiftLeft(Isa::And(Isa::ShiftRightInTurns(four, 0, 4), 3), 4));
        odd = Isa::Or(odd, Isa::ShiftLeft(Isa::And(Isa::ShiftRightInTurns(four, 2, 6), 3), 4));
      }
      Isa::Store(bytes[i][0], even);
      Isa::Store(bytes[i][1], odd);
    }
  }
  [[gnu::always_inline]] typename Isa::Ints Get(int part) const {
    return Isa::LoadBytes(bytes[part / 8][part % 2] + part % 8 / 2 * 8, 32);
  }
};

// d n and m s with n and s of four bits every 16 columns, or of six bits every 32.
template <int kPartsOfBlock>
struct LinesOfParts {
  static constexpr int kNumberBytes = kPartsOfBlock == 2 ? 64 : 48;
  static constexpr int kHeaderBytes = 32 + 2 * kNumberBytes;
  static constexpr int kBlocks = 8;
  static constexpr int kParts = kPartsOfBlock;
  static constexpr bool kHasOffsets = true;
  static constexpr bool kSubtracted = true;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    using Integers = PartIntegers<kBlocks * kParts, kParts == 2 ? 4 : 6, Isa>;
    Integers scales;
    Integers offsets;
    inline Header(const unsigned char* block, int64_t panel_bytes)
        : BlockHeader<Isa>{block, panel_bytes},
          scales(block + 32, panel_bytes),
          offsets(block + 32 + kNumberBytes, panel_bytes) {}
    [[gnu::always_inline]] typename Isa::Floats Scale(int part) const {
      return Isa::Multiply(this->Halves(0), Isa::ToFloats(scales.Get(part)));
    }
    [[gnu::always_inline]] typename Isa::Floats Offset(int part) const {
      return Isa::Multiply(this->Halves(16), Isa::ToFloats(offsets.Get(part)));
    }
  };
};
// d times a number of the part: n - 32 of six bits, int8 n, or 2 n + 1 of four.
struct SixBitNumbers {
  static constexpr int kBytes(int parts) { return 6 * parts; }
  template <int kParts, class Isa>
  struct Of : PartIntegers<kParts, 6, Isa> {
    using PartIntegers<kParts, 6, Isa>::PartIntegers;
    [[gnu::always_inline]] typename Isa::Floats Number(int part) const {
      return Isa::Add(Isa::ToFloats(this->Get(part)), Isa::Splat(-32));
    }
  };
};
struct SignedNumbers {
  static constexpr int kBytes(int parts) { return 8 * parts; }
  template <int, class Isa>
  struct Of {
    const unsigned char* numbers;
    int64_t panel_bytes;
    inline Of(const unsigned char* at, int64_t bytes) : numbers(at), panel_bytes(bytes) {}
    [[gnu::always_inline]] typename Isa::Floats Number(int part) const {
      return Isa::ToFloats(Isa::LoadSignedBytes(numbers + 8 * part, panel_bytes));
    }
  };
};
struct OddNumbers {
  static constexpr int kBytes(int parts) { return 4 * parts; }
  template <int kParts, class Isa>
  struct Of : PartIntegers<kParts, 4, Isa> {
    using PartIntegers<kParts, 4, Isa>::PartIntegers;
    [[gnu::always_inline]] typename Isa::Floats Number(int part) const {
      return Isa::Add(Isa::ToFloats(Isa::ShiftLeft(this->Get(part), 1)), Isa::Splat(1));
    }
  };
};
template <class Numbers, int kPartsOfBlock>
struct ScalesOfParts {
  static constexpr int kBlocks = 8;
  static constexpr int kParts = kPartsOfBlock;
  static constexpr int kHeaderBytes = 16 + Numbers::kBytes(kBlocks * kParts);
  static constexpr bool kHasOffsets = false;
  static constexpr bool kSubtracted = false;
  template <class Isa>
  struct Header : BlockHeader<Isa> {
    typename Numbers::template Of<kBlocks * kParts, Isa> numbers;
    inline Header(const unsigned char* block, int64_t panel_bytes)
        : BlockHeader<Isa>{block, panel_bytes}, numbers(block + 16, panel_bytes) {}
    [[gnu::always_inline]] typename Isa::Floats Scale(int part) const {
      return Isa::Multiply(this->Halves(0), numbers.Number(part));
    }
  };
};

}  // namespace
}  // namespace moed
