// What the rows of a checkpoint's tensors are made of, and which of moed's formats keeps it bit for bit: numbers one by one, or
// blocks of codes and scales. Rows lie one behind the other, each whole blocks. What is kept has the same codes and the same
// scales in the panels of the format and decodes to the same float32. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/quant/format.h"

namespace moed {

struct BlockType {
  std::string_view name;  // as the file's format spells it
  int block_columns = 1;
  size_t block_bytes = 0;
  FormatId kept = FormatId::kF32;
  // What DecodeRow and KeepRows do for it. Null: no numbers, but codes of numbers or scales.
  void (*decode_row)(const std::byte* row, int cols, float* out) = nullptr;
  void (*keep_rows)(const std::byte* rows, int count, int cols, std::byte* out) = nullptr;

  bool is_numbers() const { return decode_row != nullptr; }
};

// `cols`: a multiple of block_columns.
size_t RowBytes(const BlockType& type, int cols);
// The weights of one row.
void DecodeRow(const BlockType& type, const std::byte* row, int cols, float* out);
// `count` rows from a panel's first row on, to PackedBytes(kept, count, cols).
void KeepRows(const BlockType& type, const std::byte* rows, int count, int cols, std::byte* out);

}  // namespace moed
