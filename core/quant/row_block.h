// One row of a block, taken apart.
#pragma once

#include <cstdint>

namespace moed::quant {

inline constexpr int kMostBlockColumns = 256;
inline constexpr int kMostParts = 16;

// Codes and scales as the numbers that are stored, whatever packs them: a checkpoint's blocks (ggml_blocks.h)
// and those of panels (block_layouts.h) are both read into it, so that one becomes the other without a
// change. A part is 16 or 32 columns with a scale of their own.
struct RowBlock {
  uint16_t scale = 0;               // float16; mxfp4: the exponent, e8m0
  uint16_t offset = 0;              // float16; q4z: the code that stands for zero
  uint8_t scales[kMostParts] = {};  // integers by which a part multiplies these
  uint8_t offsets[kMostParts] = {};
  uint8_t codes[kMostBlockColumns];
  float factor = 0;                        // nvfp4: of all of a tensor's scales
  float rest = 0;                          // what it lacks
  uint16_t groups[kMostBlockColumns / 4];  // iq3_s: the grid's row for every four columns, whose codes are signs (1: minus)
};

}  // namespace moed::quant
