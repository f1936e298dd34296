// Rows of weights that a checkpoint has quantised, with their scales in other tensors: read as blocks that have both.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/pack/source_tensor.h"

namespace moed {

// Where a tensor begins.
struct FilePlace {
  std::shared_ptr<const RandomAccessFile> file;
  uint64_t offset = 0;
};

// MXFP4 as gpt-oss is released: `codes` has a byte for two neighbouring columns, the low nibble first; `scales` a byte (e8m0) for
// 32. Row r is row `row_step` r of both. Makes rows of kMxfp4Blocks.
std::shared_ptr<const RowSource> Mxfp4Rows(FilePlace codes, FilePlace scales, uint64_t cols, uint64_t row_step);

// AWQ (Lin et al., 2024, the order of its GEMM kernels) and GPTQ (Frantar et al., 2023, as AutoGPTQ and GPTQModel store it):
// 32-bit words of eight codes, the lowest first.
//   AWQ   codes (cols, rows / 8): word j of a column has rows 8 j + 0, 2, 4, 6, 1, 3, 5, 7; zeros (groups, rows / 8) the same
//   GPTQ  codes (cols / 8, rows): a word has columns 8 i to 8 i + 7; zeros (groups, rows / 8): word j has rows 8 j to 8 j + 7
// scales (groups, rows) are float16. Makes rows of kGroupsOf32 or kGroupsOf128.
struct GroupedTensors {
  bool awq = false;
  FilePlace codes;
  FilePlace zeros;
  FilePlace scales;
  uint64_t rows = 0;  // a multiple of 8
  uint64_t cols = 0;
  uint64_t group = 0;  // columns; a multiple of those of `type`
  int zero_term = 0;   // what a zero is more than what is stored
  const BlockType* type = nullptr;
};
std::shared_ptr<const RowSource> GroupedRows(GroupedTensors tensors);

// compressed-tensors' pack-quantized: `codes` (rows, cols / 8), 32-bit words of eight neighbouring columns' numbers plus 8, the
// lowest first; `scales` (rows, groups) of numbers, which become float16. Makes rows of kGroupsOf32 or kGroupsOf128.
struct PackedTensors {
  FilePlace codes;
  FilePlace scales;
  const BlockType* scale_type = nullptr;
  uint64_t cols = 0;
  uint64_t group = 0;  // columns; a multiple of those of `type`
  const BlockType* type = nullptr;
};
std::shared_ptr<const RowSource> PackedRows(PackedTensors tensors);

// FP8: `codes` (rows, cols) of e4m3, `scales` (ceil(rows / block_rows), ceil(cols / block_cols)) of numbers. Makes rows of
// kScaledE4m3, whose columns divide cols and block_cols.
struct ScaledE4m3Tensors {
  FilePlace codes;
  FilePlace scales;
  const BlockType* scale_type = nullptr;
  uint64_t cols = 0;
  uint64_t block_rows = 0;
  uint64_t block_cols = 0;
};
std::shared_ptr<const RowSource> ScaledE4m3Rows(ScaledE4m3Tensors tensors);

// What all scales of a matrix of NVFP4 are multiplied by, of levels twice its numbers: two float32, of which the second is what
// the first lacks (PartE4m3 of quant/block_layouts.h).
struct Nvfp4Factor {
  float factor = 0.5f;
  float rest = 0;
};

// NVFP4: `codes` (rows, cols / 2), a byte for two neighbouring columns, the low nibble first; `scales` (rows, cols / 16) of e4m3
// without a sign. `factors`: of matrices that stand one below the other, of the same number of rows. Makes rows of kNvfp4Blocks.
struct Nvfp4Tensors {
  FilePlace codes;
  FilePlace scales;
  uint64_t cols = 0;  // a multiple of those of kNvfp4Blocks
  uint64_t matrix_rows = 0;
  std::vector<Nvfp4Factor> factors;
};
std::shared_ptr<const RowSource> Nvfp4Rows(Nvfp4Tensors tensors);
// The same of GGUF's blocks.
std::shared_ptr<const RowSource> Nvfp4Rows(FilePlace blocks, uint64_t cols, Nvfp4Factor factor);

}  // namespace moed
