// The block types of GGUF files. What is kept takes as many bytes (but for rows that fill the last panel); weights are those that
// dequantize of the Python package gguf gives.
#pragma once

#include <cstdint>
#include <span>

#include "core/quant/block_type.h"

namespace moed {

struct GgmlType : BlockType {
  uint32_t id;  // as GGUF files number it
};

// The table, ascending by number.
std::span<const GgmlType> GgmlTypes();
const GgmlType* FindGgmlType(uint32_t id);  // null: not known

}  // namespace moed
