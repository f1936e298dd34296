// The block types of GGUF files: what a row of such blocks means, and which of moed's formats keeps it bit for bit.
//
// GGUF's rows lie one behind the other, each a row of blocks; the blocks are ggml's. What is kept has the same codes and the same
// scales in the panels of the format, takes as many bytes (but for rows that fill the last panel), and decodes to the same
// float32. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/quant/format.h"

namespace moed {

struct GgmlType {
  uint32_t id;            // as GGUF files number it
  std::string_view name;  // as they name it: "Q4_K"
  int block_columns;
  size_t block_bytes;
  FormatId kept;
  // What DecodeGgmlRow and KeepGgmlRows do for it.
  void (*decode_row)(const std::byte* row, int cols, float* out);
  void (*keep_rows)(const std::byte* rows, int count, int cols, std::byte* out);
};

// The table, ascending by number.
std::span<const GgmlType> GgmlTypes();
const GgmlType* FindGgmlType(uint32_t id);  // null: not known

// `cols`: a multiple of block_columns.
size_t GgmlRowBytes(const GgmlType& type, int cols);
// The weights of one row, as dequantize of the Python package gguf gives them.
void DecodeGgmlRow(const GgmlType& type, const std::byte* row, int cols, float* out);
// `count` rows from a panel's first row on, to PackedBytes(kept, count, cols).
void KeepGgmlRows(const GgmlType& type, const std::byte* rows, int count, int cols, std::byte* out);

// MXFP4 as gpt-oss's safetensors have it: `blocks` (count, cols / 2), a byte the codes of two neighbouring columns, the low
// nibble first; `scales` (count, cols / 32), e8m0. To PackedBytes(kMxfp4, count, cols); cols: a multiple of 32.
void KeepMxfp4Rows(const std::byte* blocks, const std::byte* scales, int count, int cols, std::byte* out);

}  // namespace moed
