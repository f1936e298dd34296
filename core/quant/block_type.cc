#include "core/quant/block_type.h"

#include "core/base/check.h"

namespace moed {

size_t RowBytes(const BlockType& type, int cols) {
  MOED_CHECK(cols % type.block_columns == 0);
  return type.block_bytes * static_cast<size_t>(cols / type.block_columns);
}

void DecodeRow(const BlockType& type, const std::byte* row, int cols, float* out) {
  MOED_CHECK(cols % type.block_columns == 0);
  type.decode_row(row, cols, out);
}

void KeepRows(const BlockType& type, const std::byte* rows, int count, int cols, std::byte* out) {
  MOED_CHECK(cols % type.block_columns == 0);
  type.keep_rows(rows, count, cols, out);
}

}  // namespace moed
