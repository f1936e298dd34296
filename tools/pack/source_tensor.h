// A matrix or vector of a checkpoint, wherever it came from: where its rows lie and what they are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/io/file.h"
#include "core/quant/format.h"
#include "core/quant/ggml_types.h"

namespace moed {

// What a checkpoint's numbers may be: rows of one table for safetensors, GgmlTypes() for GGUF.
struct SourceType {
  std::string_view name;  // as the file's format spells it
  int block_columns = 1;  // numbers of a block; a row is whole blocks
  size_t block_bytes = 0;
  FormatId format = FormatId::kF32;  // holds the same numbers exactly, and can be encoded from float32
  void (*to_float)(const std::byte* row, int cols, float* out) = nullptr;
  const GgmlType* ggml = nullptr;  // null: of safetensors
};
std::span<const SourceType> SourceTypes();  // of safetensors: BF16, F16, F32
extern const SourceType kSourceBytes;       // U8: codes and scales of numbers, not numbers
extern const SourceType kSourceMxfp4;       // see SourceTensor::scales_file
const SourceType& SourceTypeOf(const GgmlType& type);

struct SourceTensor {
  std::string name;
  const SourceType* type = nullptr;
  std::vector<uint64_t> shape;
  std::shared_ptr<const RandomAccessFile> file;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;   // = product of shape x type->block_bytes / type->block_columns, inside the file; of a part from its first
                        // number to its last
  // Of a part of another tensor, of a type without blocks: numbers from one row to the next and from one column to the next. 0:
  // rows without gaps.
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int group_rows = 0;  // where rows come in groups: of one; the numbers from one to the next
  int64_t group_stride = 0;
  // Of MXFP4: where the scales are, a byte for 32 numbers; at `offset` are the codes, a byte for two, the low nibble first.
  std::shared_ptr<const RandomAccessFile> scales_file;
  uint64_t scales_offset = 0;
  // Of a matrix whose rows stand in another order: row r lies where row row_order[r] would. Empty: as they are.
  std::vector<uint32_t> row_order;

  uint64_t row_bytes() const { return shape.back() / static_cast<uint64_t>(type->block_columns) * type->block_bytes; }
};

std::string ShapeName(std::span<const uint64_t> shape);  // "(32, 192)"

// Rows first .. first + count of a matrix without strides as they lie in the file, one behind the other; a vector is one row.
// `out` is resized.
absl::Status ReadRows(const SourceTensor& tensor, uint64_t first, uint64_t count, std::vector<std::byte>& out);

}  // namespace moed
