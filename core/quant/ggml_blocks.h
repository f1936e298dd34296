// The blocks of GGUF files, taken apart. `block`: the bytes of one, as ggml lays them out.
#pragma once

#include <cstddef>

#include "core/quant/row_block.h"

namespace moed::quant {

void UnpackQ4_0(const std::byte* block, RowBlock& out);
void UnpackQ4_1(const std::byte* block, RowBlock& out);
void UnpackQ5_0(const std::byte* block, RowBlock& out);
void UnpackQ5_1(const std::byte* block, RowBlock& out);
void UnpackQ8_0(const std::byte* block, RowBlock& out);
void UnpackQ2K(const std::byte* block, RowBlock& out);
void UnpackQ3K(const std::byte* block, RowBlock& out);
void UnpackQ4K(const std::byte* block, RowBlock& out);
void UnpackQ5K(const std::byte* block, RowBlock& out);
void UnpackQ6K(const std::byte* block, RowBlock& out);
void UnpackIq4Nl(const std::byte* block, RowBlock& out);
void UnpackIq3S(const std::byte* block, RowBlock& out);
void UnpackIq4Xs(const std::byte* block, RowBlock& out);
void UnpackMxfp4(const std::byte* block, RowBlock& out);
void UnpackNvfp4(const std::byte* block, RowBlock& out);  // of a tensor without a scale of its own

}  // namespace moed::quant
