#include "core/quant/ggml_types.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/quant/block_layouts.h"
#include "core/quant/ggml_blocks.h"

namespace moed {
namespace {

using quant::RowBlock;

float Same(float weight) { return weight; }

template <class Element, float (*kWiden)(Element)>
void DecodeFloats(const std::byte* row, int cols, float* out) {
  for (int column = 0; column < cols; ++column) out[column] = kWiden(quant::Load<Element>(row + sizeof(Element) * column));
}

// Column after column, 8 rows of each; zeros where the matrix ends.
template <class Element>
void KeepFloats(const std::byte* rows, int count, int cols, std::byte* out) {
  const int64_t width = int64_t{Blocks(cols)} * kBlockColumns;
  std::memset(out, 0, sizeof(Element) * Panels(count) * kPanelRows * width);
  for (int64_t row = 0; row < count; ++row) {
    std::byte* panel = out + sizeof(Element) * (row / kPanelRows * kPanelRows * width + row % kPanelRows);
    for (int column = 0; column < cols; ++column) {
      std::memcpy(panel + sizeof(Element) * kPanelRows * column, rows + sizeof(Element) * (row * cols + column), sizeof(Element));
    }
  }
}

template <class Layout, size_t kBlockBytes, void (*kUnpack)(const std::byte*, RowBlock&)>
void DecodeBlocks(const std::byte* row, int cols, float* out) {
  RowBlock block;
  for (int first = 0; first < cols; first += Layout::kColumns, row += kBlockBytes) {
    kUnpack(row, block);
    quant::Weights<Layout>(block, out + first);
  }
}

template <class Layout, size_t kBlockBytes, void (*kUnpack)(const std::byte*, RowBlock&)>
void KeepBlocks(const std::byte* rows, int count, int cols, std::byte* out) {
  const int blocks = cols / Layout::kColumns;
  const size_t panel_bytes = size_t{Layout::kBytes} * blocks;
  std::memset(out, 0, panel_bytes * Panels(count));
  RowBlock block;
  for (int row = 0; row < count; ++row) {
    std::byte* at = out + panel_bytes * (row / kPanelRows);
    for (int b = 0; b < blocks; ++b, rows += kBlockBytes, at += Layout::kBytes) {
      kUnpack(rows, block);
      Layout::Put(block, row % kPanelRows, at);
    }
  }
}

template <FormatId kKept, size_t kBlockBytes, void (*kUnpack)(const std::byte*, RowBlock&)>
constexpr GgmlType Row(uint32_t id, std::string_view name) {
  using Layout = quant::BlockLayout<kKept>;
  return {id,
          name,
          Layout::kColumns,
          kBlockBytes,
          kKept,
          DecodeBlocks<Layout, kBlockBytes, kUnpack>,
          KeepBlocks<Layout, kBlockBytes, kUnpack>};
}

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, FormatId::kF32, DecodeFloats<float, Same>, KeepFloats<uint32_t>},
    {1, "F16", 1, 2, FormatId::kF16, DecodeFloats<uint16_t, Float16ToFloat>, KeepFloats<uint16_t>},
    Row<FormatId::kQ4, 18, quant::UnpackQ4_0>(2, "Q4_0"),
    Row<FormatId::kQ4A, 20, quant::UnpackQ4_1>(3, "Q4_1"),
    Row<FormatId::kQ5_0, 22, quant::UnpackQ5_0>(6, "Q5_0"),
    Row<FormatId::kQ5_1, 24, quant::UnpackQ5_1>(7, "Q5_1"),
    Row<FormatId::kQ8, 34, quant::UnpackQ8_0>(8, "Q8_0"),
    Row<FormatId::kQ2K, 84, quant::UnpackQ2K>(10, "Q2_K"),
    Row<FormatId::kQ3K, 110, quant::UnpackQ3K>(11, "Q3_K"),
    Row<FormatId::kQ4K, 144, quant::UnpackQ4K>(12, "Q4_K"),
    Row<FormatId::kQ5K, 176, quant::UnpackQ5K>(13, "Q5_K"),
    Row<FormatId::kQ6K, 210, quant::UnpackQ6K>(14, "Q6_K"),
    Row<FormatId::kIq4Nl, 18, quant::UnpackIq4Nl>(20, "IQ4_NL"),
    Row<FormatId::kIq3S, 110, quant::UnpackIq3S>(21, "IQ3_S"),
    Row<FormatId::kIq4Xs, 136, quant::UnpackIq4Xs>(23, "IQ4_XS"),
    {30, "BF16", 1, 2, FormatId::kBF16, DecodeFloats<uint16_t, BFloat16ToFloat>, KeepFloats<uint16_t>},
    Row<FormatId::kMxfp4, 17, quant::UnpackMxfp4>(39, "MXFP4"),
};

// A pair of neighbouring columns in a byte, the first in the low nibble.
void UnpackPairs(const std::byte* in, uint8_t* codes) {
  for (int i = 0; i < kBlockColumns / 2; ++i) {
    codes[2 * i] = std::to_integer<uint8_t>(in[i]) & 15;
    codes[2 * i + 1] = std::to_integer<uint8_t>(in[i]) >> 4;
  }
}

}  // namespace

std::span<const GgmlType> GgmlTypes() { return kTypes; }

const GgmlType* FindGgmlType(uint32_t id) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [id](const GgmlType& row) { return row.id == id; });
  return type == std::end(kTypes) ? nullptr : type;
}

size_t GgmlRowBytes(const GgmlType& type, int cols) {
  MOED_CHECK(cols % type.block_columns == 0);
  return type.block_bytes * static_cast<size_t>(cols / type.block_columns);
}

void DecodeGgmlRow(const GgmlType& type, const std::byte* row, int cols, float* out) {
  MOED_CHECK(cols % type.block_columns == 0);
  type.decode_row(row, cols, out);
}

void KeepGgmlRows(const GgmlType& type, const std::byte* rows, int count, int cols, std::byte* out) {
  MOED_CHECK(cols % type.block_columns == 0);
  type.keep_rows(rows, count, cols, out);
}

void KeepMxfp4Rows(const std::byte* blocks, const std::byte* scales, int count, int cols, std::byte* out) {
  using Layout = quant::BlockLayout<FormatId::kMxfp4>;
  MOED_CHECK(cols % Layout::kColumns == 0);
  const int blocks_a_row = cols / Layout::kColumns;
  std::memset(out, 0, PackedBytes(FormatId::kMxfp4, count, cols));
  RowBlock block;
  for (int row = 0; row < count; ++row) {
    std::byte* at = out + static_cast<size_t>(row / kPanelRows) * blocks_a_row * Layout::kBytes;
    for (int b = 0; b < blocks_a_row; ++b, blocks += kBlockColumns / 2, ++scales, at += Layout::kBytes) {
      block.scale = std::to_integer<uint8_t>(*scales);
      UnpackPairs(blocks, block.codes);
      Layout::Put(block, row % kPanelRows, at);
    }
  }
}

}  // namespace moed
