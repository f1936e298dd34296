// The formats of codes and scales, a row for each: how a panel block packs a row (the layouts of format.h), and what its numbers
// mean. decode, KeepGgmlRows and the scalar products (kernels/reference.cc) stand on them.
//   kColumns      of a block
//   kPartColumns  columns that share a scale
//   Put, Get      one row, into a block whose header is zero, and out of it
//   Level         the integer that a code stands for, -128..127
//   Scale, Offset weight = Scale * Level, and + Offset where kHasOffsets. Products of a float16 and an integer of at most 8 bits
//                 are exact
#pragma once

#include <bit>

#include "core/quant/codec.h"
#include "core/quant/format_id.h"
#include "core/quant/half.h"
#include "core/quant/planes.h"
#include "core/quant/row_block.h"

namespace moed::quant {

// What a block begins with: 8 float16 scales d[r], perhaps 8 float16 offsets m[r] behind them.
struct ScaleHeader {
  static constexpr int kBytes = 2 * kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) { Store(at + 2 * row, block.scale); }
  static void Get(const std::byte* at, int row, RowBlock& block) { block.scale = Load<uint16_t>(at + 2 * row); }
};
struct LineHeader {
  static constexpr int kBytes = 4 * kPanelRows;
  static void Put(const RowBlock& block, int row, std::byte* at) {
    ScaleHeader::Put(block, row, at);
    Store(at + ScaleHeader::kBytes + 2 * row, block.offset);
  }
  static void Get(const std::byte* at, int row, RowBlock& block) {
    ScaleHeader::Get(at, row, block);
    block.offset = Load<uint16_t>(at + ScaleHeader::kBytes + 2 * row);
  }
};

// A header, then for every 32 columns the planes of their codes.
template <class Header, class Planes, int kBlocks = 1>
struct Packed {
  static constexpr int kColumns = kBlocks * kBlockColumns;
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

// weight = d * (q - kZeroCode).
template <int kZeroCode>
struct Centred {
  static constexpr int kPartColumns = kBlockColumns;
  static constexpr bool kHasOffsets = false;
  static int Level(const RowBlock& block, int column) { return block.codes[column] - kZeroCode; }
  static float Scale(const RowBlock& block, int) { return Float16ToFloat(block.scale); }
  static float Offset(const RowBlock&, int) { return 0; }
};
// weight = d * q + m.
struct Line {
  static constexpr int kPartColumns = kBlockColumns;
  static constexpr bool kHasOffsets = true;
  static int Level(const RowBlock& block, int column) { return block.codes[column]; }
  static float Scale(const RowBlock& block, int) { return Float16ToFloat(block.scale); }
  static float Offset(const RowBlock& block, int) { return Float16ToFloat(block.offset); }
};
// weight = d * q, q in two's complement.
struct Signed : Centred<0> {
  static int Level(const RowBlock& block, int column) { return static_cast<int8_t>(block.codes[column]); }
};

template <FormatId kFormat>
struct BlockLayout;
template <>
struct BlockLayout<FormatId::kQ8> : Packed<ScaleHeader, Planes<8>>, Signed {};
template <>
struct BlockLayout<FormatId::kQ4> : Packed<ScaleHeader, Planes<4>>, Centred<8> {};
template <>
struct BlockLayout<FormatId::kQ2> : Packed<LineHeader, Planes<2>>, Line {};
template <>
struct BlockLayout<FormatId::kQ4A> : Packed<LineHeader, Planes<4>>, Line {};
template <>
struct BlockLayout<FormatId::kQ3> : Packed<LineHeader, Planes<2, 1>>, Line {};

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
