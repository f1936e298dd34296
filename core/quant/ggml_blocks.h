// The blocks of GGUF files, taken apart. `block`: the bytes of one, as ggml lays them out.
#pragma once

#include <cstddef>

#include "core/quant/row_block.h"

namespace moed::quant {

void UnpackQ8_0(const std::byte* block, RowBlock& out);
void UnpackQ4_0(const std::byte* block, RowBlock& out);
void UnpackQ4_1(const std::byte* block, RowBlock& out);

}  // namespace moed::quant
