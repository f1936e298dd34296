// The number formats of GGML tensors as rows of one table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/quant/format_id.h"

namespace moed {

struct GgmlType {
  uint32_t id;            // as files spell it
  std::string_view name;  // "Q4_K"
  int block_columns;      // numbers of a block, neighbours in a row
  size_t block_bytes;
  FormatId kept;  // holds the same numbers exactly
};

std::span<const GgmlType> GgmlTypes();
const GgmlType* FindGgmlType(uint32_t id);  // null: not known
// `cols` is a multiple of the type's block_columns.
size_t GgmlRowBytes(const GgmlType& type, int cols);
void DecodeGgmlRow(const GgmlType& type, const std::byte* row, int cols, float* out);

}  // namespace moed
