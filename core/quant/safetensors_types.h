// The types of safetensors files, and the blocks that their quantised tensors are read as.
#pragma once

#include <span>

#include "core/quant/block_type.h"

namespace moed {

// BF16, F16, F32, and what is no number by itself: F8_E4M3, I32, I64, U8.
std::span<const BlockType> SafetensorsTypes();
const BlockType* FindSafetensorsType(std::string_view name);  // null: not known

// Blocks that no file has; who reads the tensors makes them (tools/pack/quantized_rows.h). Columns of a group of weights that
// share a scale and a code for zero, 32 or 128 of them: the scale as float16, a byte with the code for zero, a byte for two
// neighbouring columns' codes of 4 bits, the low ones first. weight = scale (code - zero), exactly.
extern const BlockType kGroupsOf32;
extern const BlockType kGroupsOf128;
// A scale as float32, then 128 numbers of e4m3. weight = number scale, rounded to float32.
extern const BlockType kScaledE4m3;
// MXFP4, as GGUF files have it.
extern const BlockType kMxfp4Blocks;
// NVFP4, as GGUF files have it, behind the float32 factor and rest of the tensor (nvfp4 of quant/block_layouts.h).
extern const BlockType kNvfp4Blocks;

}  // namespace moed
