// The rows of a table of block types: numbers one by one, and blocks that a function takes apart.
#pragma once

#include <cstring>
#include <string_view>

#include "core/quant/block_layouts.h"
#include "core/quant/block_type.h"

namespace moed::quant {

inline float Same(float weight) { return weight; }

template <class Element, float (*kWiden)(Element)>
void DecodeNumbers(const std::byte* row, int cols, float* out) {
  for (int column = 0; column < cols; ++column) out[column] = kWiden(Load<Element>(row + sizeof(Element) * column));
}

// Column after column, 8 rows of each; zeros where the matrix ends.
template <class Element>
void KeepNumbers(const std::byte* rows, int count, int cols, std::byte* out) {
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
    Weights<Layout>(block, out + first);
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

template <class Element, float (*kWiden)(Element)>
constexpr BlockType Numbers(std::string_view name, FormatId format) {
  return {name, 1, sizeof(Element), format, DecodeNumbers<Element, kWiden>, KeepNumbers<Element>};
}
inline constexpr BlockType kF32Numbers = Numbers<float, Same>("F32", FormatId::kF32);
inline constexpr BlockType kF16Numbers = Numbers<uint16_t, Float16ToFloat>("F16", FormatId::kF16);
inline constexpr BlockType kBF16Numbers = Numbers<uint16_t, BFloat16ToFloat>("BF16", FormatId::kBF16);

template <FormatId kKept, size_t kBlockBytes, void (*kUnpack)(const std::byte*, RowBlock&)>
constexpr BlockType BlocksOf(std::string_view name) {
  using Layout = BlockLayout<kKept>;
  return {name,
          Layout::kColumns,
          kBlockBytes,
          kKept,
          DecodeBlocks<Layout, kBlockBytes, kUnpack>,
          KeepBlocks<Layout, kBlockBytes, kUnpack>};
}

}  // namespace moed::quant
