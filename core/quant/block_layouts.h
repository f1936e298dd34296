// The formats of codes and scales, a row for each: how a panel block packs a row (the layouts of format.h), and what its numbers
// mean. decode, KeepRows and the scalar products (kernels/reference.cc) stand on them.
//   kColumns      of a block
//   kPartColumns  columns that share a scale
//   Put, Get      one row, into a block that was zero, and out of it. Scales::Get, its header alone, takes bytes from wherever
//                 Load(place) reads them: devices have memory of several kinds. GetOfPart: what one part needs of it, whose own
//                 numbers go to place 0
//   Level         the integer that a code stands for, -128..127
//   Scale, Offset weight = Scale * Level, and + Offset where kHasOffsets. Products of a float16 and an integer of at most 8 bits
//                 are exact
#pragma once

#include <bit>
#include <cmath>

#include "core/quant/byte_scale.h"
#include "core/quant/codec.h"
#include "core/quant/format_id.h"
#include "core/quant/fp8.h"
#include "core/quant/half.h"
#include "core/quant/level_tables.h"
#include "core/quant/pair_planes.h"
#include "core/quant/planes.h"
#include "core/quant/row_block.h"

namespace moed::quant {

// What a block begins with: 8 float16 scales d[r], perhaps 8 float16 offsets m[r] behind them.
struct ScaleHeader {
  static constexpr int kBytes = 2 * kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) { Store(at + 2 * row, block.scale); }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    block.scale = Load<uint16_t>(at + 2 * row);
  }
};
struct LineHeader {
  static constexpr int kBytes = 4 * kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) {
    ScaleHeader::Put(block, row, at);
    Store(at + ScaleHeader::kBytes + 2 * row, block.offset);
  }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    ScaleHeader::Get(at, row, block);
    block.offset = Load<uint16_t>(at + ScaleHeader::kBytes + 2 * row);
  }
};

// 8 float16 scales d[r], then a byte a row: the code that stands for zero.
struct ZeroPointHeader {
  static constexpr int kBytes = ScaleHeader::kBytes + kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) {
    ScaleHeader::Put(block, row, at);
    at[ScaleHeader::kBytes + row] = static_cast<std::byte>(block.offset);
  }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    ScaleHeader::Get(at, row, block);
    block.offset = Load<uint8_t>(at + ScaleHeader::kBytes + row);
  }
};

// One exponent a row: e8m0.
struct ExponentHeader {
  static constexpr int kBytes = kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) { at[row] = static_cast<std::byte>(block.scale); }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    block.scale = Load<uint8_t>(at + row);
  }
};

// A byte a row for the scale, then one for the offset.
struct ByteHeader {
  static constexpr int kBytes = 2 * kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) {
    at[row] = static_cast<std::byte>(block.scale);
    at[kPanelRows + row] = static_cast<std::byte>(block.offset);
  }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    block.scale = Load<uint8_t>(at + row);
    block.offset = Load<uint8_t>(at + (kPanelRows + row));
  }
};

// Of all rows, which are of one tensor: two float32.
struct FactorHeader {
  static constexpr int kBytes = 2 * sizeof(float);
  static void Put(const RowBlock& block, int, std::byte* at) {
    Store(at, block.factor);
    Store(at + sizeof(float), block.rest);
  }
  template <class Bytes>
  static constexpr void Get(Bytes at, int, RowBlock& block) {
    block.factor = Load<float>(at);
    block.rest = Load<float>(at + int{sizeof(float)});
  }
};

template <class Header, class Bytes>
constexpr void GetOfPart(Bytes at, int row, int part, RowBlock& block) {
  if constexpr (requires { Header::OfPart(at, row, part, block); }) {
    Header::OfPart(at, row, part, block);
  } else {
    Header::Get(at, row, block);
  }
}

// One header behind the other.
template <class First, class Second>
struct Both {
  static constexpr int kBytes = First::kBytes + Second::kBytes;
  static void Put(const RowBlock& block, int row, std::byte* at) {
    First::Put(block, row, at);
    Second::Put(block, row, at + First::kBytes);
  }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    First::Get(at, row, block);
    Second::Get(at + First::kBytes, row, block);
  }
  template <class Bytes>
  static constexpr void OfPart(Bytes at, int row, int part, RowBlock& block) {
    GetOfPart<First>(at, row, part, block);
    GetOfPart<Second>(at + First::kBytes, row, part, block);
  }
};

using PartNumbers = uint8_t (RowBlock::*)[kMostParts];

// Integer scales (or offsets) of kParts parts, kBits bits of each from bit kLow on: those of row r and part i are in byte
// 8 (i kBits / 8) + r, from bit i kBits mod 8 on.
template <PartNumbers kNumbers, int kParts, int kBits, int kLow = 0>
struct PartBits {
  static constexpr int kBytes = kPanelRows * kParts * kBits / 8;
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr int Byte(int row, int part) { return kPanelRows * (part * kBits / 8) + row; }
  static void Put(const RowBlock& block, int row, std::byte* at) {
    for (int i = 0; i < kParts; ++i) at[Byte(row, i)] |= std::byte(((block.*kNumbers)[i] >> kLow & kMask) << i * kBits % 8);
  }
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, RowBlock& block) {
    for (int i = 0; i < kParts; ++i) Get(at, row, i, (block.*kNumbers)[i]);
  }
  template <class Bytes>
  static constexpr void OfPart(Bytes at, int row, int part, RowBlock& block) {
    Get(at, row, part, (block.*kNumbers)[0]);
  }

 private:
  template <class Bytes>
  static constexpr void Get(Bytes at, int row, int part, uint8_t& number) {
    const int bits = Load<uint8_t>(at + Byte(row, part)) >> part * kBits % 8 & kMask;
    number = static_cast<uint8_t>(kLow == 0 ? bits : number | bits << kLow);
  }
};
template <PartNumbers kNumbers, int kParts>
using SixBits = Both<PartBits<kNumbers, kParts, 4>, PartBits<kNumbers, kParts, 2, 4>>;

constexpr PartNumbers kScales = &RowBlock::scales;
constexpr PartNumbers kOffsets = &RowBlock::offsets;

// A header, then for every 32 columns the planes of their codes.
template <class Header, class Planes, int kBlocks = 1>
struct Packed {
  static constexpr int kColumns = kBlocks * kBlockColumns;
  using Scales = Header;
  using Codes = Planes;
  static constexpr int kHeaderBytes = Header::kBytes;
  static constexpr int kBytes = kHeaderBytes + kBlocks * Planes::kBytes;
  static void Put(const RowBlock& block, int row, std::byte* out) {
    Header::Put(block, row, out);
    for (int b = 0; b < kBlocks; ++b) {
      Planes::Put(block.codes + kBlockColumns * b, row, out + kHeaderBytes + Planes::kBytes * b);
    }
  }
  static void Get(const std::byte* in, int row, RowBlock& block) {
    Header::Get(in, row, block);
    for (int b = 0; b < kBlocks; ++b) {
      Planes::Get(in + kHeaderBytes + Planes::kBytes * b, row, block.codes + kBlockColumns * b);
    }
  }
};

// iq3_s: for every 32 columns the grid's rows, low bytes first (byte 8 s + r: columns 4 s to 4 s + 3 of row r), then the ninth
// bits (bit s of byte r), then a plane of signs.
struct PackedGrid {
  static constexpr int kBlocks = 8;
  static constexpr int kColumns = kBlocks * kBlockColumns;
  using Scales = Both<ScaleHeader, PartBits<kScales, 8, 4>>;
  static constexpr int kHeaderBytes = Scales::kBytes;
  static constexpr int kGroups = kBlockColumns / kGroupColumns;
  static constexpr int kNinthBits = kPanelRows * kGroups;
  static constexpr int kSigns = kNinthBits + kPanelRows;
  static constexpr int kBlockBytes = kSigns + Planes<1>::kBytes;
  static constexpr int kBytes = kHeaderBytes + kBlocks * kBlockBytes;
  static void Put(const RowBlock& block, int row, std::byte* out) {
    Scales::Put(block, row, out);
    for (int b = 0; b < kBlocks; ++b) {
      std::byte* at = out + kHeaderBytes + kBlockBytes * b;
      for (int s = 0; s < kGroups; ++s) {
        const int group = block.groups[kGroups * b + s];
        at[kPanelRows * s + row] = std::byte(group & 255);
        at[kNinthBits + row] |= std::byte(group >> 8 << s);
      }
      Planes<1>::Put(block.codes + kBlockColumns * b, row, at + kSigns);
    }
  }
  static void Get(const std::byte* in, int row, RowBlock& block) {
    Scales::Get(in, row, block);
    for (int b = 0; b < kBlocks; ++b) {
      const std::byte* at = in + kHeaderBytes + kBlockBytes * b;
      for (int s = 0; s < kGroups; ++s) {
        const int ninth = Load<uint8_t>(at + kNinthBits + row) >> s & 1;
        block.groups[kGroups * b + s] = static_cast<uint16_t>(Load<uint8_t>(at + kPanelRows * s + row) | ninth << 8);
      }
      Planes<1>::Get(at + kSigns, row, block.codes + kBlockColumns * b);
    }
  }
};

// What codes stand for: an integer from kZeroCode on, two's complement, an entry of a table, a magnitude of a grid.
template <int kZeroCode>
struct Integers {
  static int Level(const RowBlock& block, int column) { return block.codes[column] - kZeroCode; }
};
struct SignedIntegers {
  static int Level(const RowBlock& block, int column) { return static_cast<int8_t>(block.codes[column]); }
};
template <const int8_t (&kTable)[16]>
struct TableEntries {
  static int Level(const RowBlock& block, int column) { return kTable[block.codes[column]]; }
};
struct GridMagnitudes {
  static int Level(const RowBlock& block, int column) {
    const int magnitude = kIq3sGrid.rows[block.groups[column / kGroupColumns]] >> 8 * (column % kGroupColumns) & 15;
    return block.codes[column] != 0 ? -magnitude : magnitude;
  }
};

// Scales: of all of a block, or d times an integer of the part; offsets as well.
struct BlockScale {
  static constexpr int kPartColumns = kBlockColumns;
  static constexpr bool kHasOffsets = false;
  static constexpr float Scale(const RowBlock& block, int) { return Float16ToFloat(block.scale); }
  static constexpr float Offset(const RowBlock&, int) { return 0; }
};
struct BlockLine : BlockScale {
  static constexpr bool kHasOffsets = true;
  static constexpr float Offset(const RowBlock& block, int) { return Float16ToFloat(block.offset); }
};
// d (q - z) = d q - d z: products and difference are exact.
struct BlockZeroPoint : BlockScale {
  static constexpr bool kHasOffsets = true;
  static constexpr float Offset(const RowBlock& block, int) {
    return -(Float16ToFloat(block.scale) * static_cast<float>(block.offset));
  }
};
// 2^(e - 128), which for e < 2 float32 has as a subnormal.
struct BlockExponent : BlockScale {
  static constexpr float Scale(const RowBlock& block, int) {
    const uint32_t e = block.scale;
    return std::bit_cast<float>(e < 2 ? 0x200000u << e : (e - 1) << 23);
  }
};
template <int kColumnsOfPart>
struct PartLine {
  static constexpr int kPartColumns = kColumnsOfPart;
  static constexpr bool kHasOffsets = true;
  static constexpr float Scale(const RowBlock& block, int part) { return Float16ToFloat(block.scale) * block.scales[part]; }
  static constexpr float Offset(const RowBlock& block, int part) { return -(Float16ToFloat(block.offset) * block.offsets[part]); }
};
// d of a byte, and d n / 16 with an int8 n: a product of 4 significant bits and 8 is exact.
struct ByteLine {
  static constexpr int kPartColumns = kBlockColumns;
  static constexpr bool kHasOffsets = true;
  static constexpr float Scale(const RowBlock& block, int) { return ByteScaleToFloat(static_cast<uint8_t>(block.scale)); }
  static constexpr float Offset(const RowBlock& block, int part) {
    return Scale(block, part) * (static_cast<float>(static_cast<int8_t>(block.offset)) * kOffsetStep);
  }
};
// d times (kFactor n + kTerm), n the part's integer, of kBits with the sign or unsigned.
template <int kColumnsOfPart, class Number, int kFactor, int kTerm>
struct PartScale {
  static constexpr int kPartColumns = kColumnsOfPart;
  static constexpr bool kHasOffsets = false;
  static constexpr float Scale(const RowBlock& block, int part) {
    return Float16ToFloat(block.scale) * static_cast<float>(kFactor * static_cast<Number>(block.scales[part]) + kTerm);
  }
  static constexpr float Offset(const RowBlock&, int) { return 0; }
};

// A number of e4m3 times the tensor's factor and its rest, rounded once: where they are the two float32 that make up 1 / g, that
// is the number divided by g, whatever float32 g is.
template <int kColumnsOfPart>
struct PartE4m3 {
  static constexpr int kPartColumns = kColumnsOfPart;
  static constexpr bool kHasOffsets = false;
  static constexpr float Scale(const RowBlock& block, int part) {
    const float number = UnsignedE4m3ToFloat(block.scales[part]);
    return fmaf(number, block.factor, number * block.rest);
  }
  static constexpr float Offset(const RowBlock&, int) { return 0; }
};

using FactorAndBytes = Both<FactorHeader, PartBits<kScales, 4, 8>>;
using ScaleAndSixBits8 = Both<ScaleHeader, SixBits<kScales, 8>>;
using ScaleAndSixBits16 = Both<ScaleHeader, SixBits<kScales, 16>>;
using ScaleAndBytes = Both<ScaleHeader, PartBits<kScales, 16, 8>>;
using LineAndSixBits = Both<LineHeader, Both<SixBits<kScales, 8>, SixBits<kOffsets, 8>>>;
using LineAndNibbles = Both<LineHeader, Both<PartBits<kScales, 16, 4>, PartBits<kOffsets, 16, 4>>>;
template <FormatId kFormat>
struct BlockLayout;
template <>
struct BlockLayout<FormatId::kQ8> : Packed<ScaleHeader, Planes<8>>, SignedIntegers, BlockScale {};
template <>
struct BlockLayout<FormatId::kQ4> : Packed<ScaleHeader, Planes<4>>, Integers<8>, BlockScale {};
template <>
struct BlockLayout<FormatId::kQ2> : Packed<LineHeader, Planes<2>>, Integers<0>, BlockLine {};
template <>
struct BlockLayout<FormatId::kQ4A> : Packed<LineHeader, Planes<4>>, Integers<0>, BlockLine {};
template <>
struct BlockLayout<FormatId::kQ3> : Packed<LineHeader, Planes<2, 1>>, Integers<0>, BlockLine {};
template <>
struct BlockLayout<FormatId::kQ5_0> : Packed<ScaleHeader, Planes<4, 1>>, Integers<16>, BlockScale {};
template <>
struct BlockLayout<FormatId::kQ5_1> : Packed<LineHeader, Planes<4, 1>>, Integers<0>, BlockLine {};
template <>
struct BlockLayout<FormatId::kQ2K> : Packed<LineAndNibbles, Planes<2>, 8>, Integers<0>, PartLine<16> {};
template <>
struct BlockLayout<FormatId::kQ3K> : Packed<ScaleAndSixBits16, Planes<2, 1>, 8>, Integers<4>, PartScale<16, uint8_t, 1, -32> {};
template <>
struct BlockLayout<FormatId::kQ4K> : Packed<LineAndSixBits, Planes<4>, 8>, Integers<0>, PartLine<32> {};
template <>
struct BlockLayout<FormatId::kQ5K> : Packed<LineAndSixBits, Planes<4, 1>, 8>, Integers<0>, PartLine<32> {};
template <>
struct BlockLayout<FormatId::kQ6K> : Packed<ScaleAndBytes, Planes<4, 2>, 8>, Integers<32>, PartScale<16, int8_t, 1, 0> {};
template <>
struct BlockLayout<FormatId::kIq4Nl> : Packed<ScaleHeader, Planes<4>>, TableEntries<kIq4Levels>, BlockScale {};
template <>
struct BlockLayout<FormatId::kIq4Xs>
    : Packed<ScaleAndSixBits8, Planes<4>, 8>, TableEntries<kIq4Levels>, PartScale<32, uint8_t, 1, -32> {};
template <>
struct BlockLayout<FormatId::kIq3S> : PackedGrid, GridMagnitudes, PartScale<32, uint8_t, 2, 1> {};
template <>
struct BlockLayout<FormatId::kMxfp4> : Packed<ExponentHeader, Planes<4>>, TableEntries<kMxfp4Levels>, BlockExponent {};
template <>
struct BlockLayout<FormatId::kQ4Z> : Packed<ZeroPointHeader, Planes<4>>, Integers<0>, BlockZeroPoint {};
template <>
struct BlockLayout<FormatId::kQ4Z128> : Packed<ZeroPointHeader, Planes<4>, 4>, Integers<0>, BlockZeroPoint {};
template <>
struct BlockLayout<FormatId::kQ2S> : Packed<ByteHeader, Planes<2>>, Integers<0>, ByteLine {};
template <>
struct BlockLayout<FormatId::kQ2P> : Packed<ByteHeader, PairPlanes>, Integers<0>, ByteLine {};
template <>
struct BlockLayout<FormatId::kNvfp4> : Packed<FactorAndBytes, Planes<4>, 2>, TableEntries<kMxfp4Levels>, PartE4m3<16> {};

// The weights of a row that was taken apart: Layout::kColumns of them.
template <class Layout>
void Weights(const RowBlock& block, float* weights) {
  for (int first = 0; first < Layout::kColumns; first += Layout::kPartColumns) {
    const int part = first / Layout::kPartColumns;
    const float scale = Layout::Scale(block, part);
    for (int column = first; column < first + Layout::kPartColumns; ++column) {
      weights[column] = scale * static_cast<float>(Layout::Level(block, column));
      if constexpr (Layout::kHasOffsets) weights[column] += Layout::Offset(block, part);
    }
  }
}

// Row 0..7 of a panel block.
template <class Layout>
void DecodeBlockRow(const std::byte* in, int row, float* weights) {
  RowBlock block;
  Layout::Get(in, row, block);
  Weights<Layout>(block, weights);
}

}  // namespace moed::quant
