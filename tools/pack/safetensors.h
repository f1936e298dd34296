// The safetensors file format: u64 length, a JSON header of that length, then the tensors' bytes without holes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/file.h"
#include "core/quant/format.h"

namespace moed {

// What a checkpoint's numbers may be: rows of one table.
struct SourceType {
  std::string_view name;  // as safetensors spells it
  size_t bytes;
  FormatId format;  // holds the same numbers exactly
  void (*to_float)(const std::byte* in, size_t count, float* out);
};
std::span<const SourceType> SourceTypes();  // BF16, F16, F32
extern const SourceType kSourceBytes;       // U8: codes and scales of numbers, not numbers
extern const SourceType kSourceMxfp4;       // see SourceTensor::scales_file

struct SourceTensor {
  std::string name;
  const SourceType* type = nullptr;
  std::vector<uint64_t> shape;
  std::shared_ptr<const RandomAccessFile> file;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;   // = product of shape x type->bytes, inside the file; of a part from its first number to its last
  // Of a part of another tensor: numbers from one row to the next and from one column to the next. 0: rows without gaps.
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  // Of MXFP4: where the scales are, a byte for 32 numbers; at `offset` are the codes, a byte for two, the low nibble first.
  std::shared_ptr<const RandomAccessFile> scales_file;
  uint64_t scales_offset = 0;
};

std::string ShapeName(std::span<const uint64_t> shape);  // "(32, 192)"

// Every tensor of the file, by offset. INVALID_ARGUMENT naming file, tensor, expected and found for anything that the format
// forbids (holes, overlaps, sizes that do not fit, duplicate names) and for numbers of another type.
absl::StatusOr<std::vector<SourceTensor>> ReadSafetensors(std::shared_ptr<const RandomAccessFile> file);

}  // namespace moed
