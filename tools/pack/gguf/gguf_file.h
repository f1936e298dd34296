// One GGUF file, versions 2 and 3, little endian: header, metadata, the table of tensors. Weights stay on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/file.h"
#include "core/quant/ggml_types.h"
#include "tools/pack/gguf/metadata.h"

namespace moed {

struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<uint64_t> shape;  // 1 to 4 extents, each at least 1; columns come last, where the file has them first
  std::shared_ptr<const RandomAccessFile> file;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;   // of all rows, inside the file; columns are a multiple of the type's block_columns
};

struct GgufFile {
  std::shared_ptr<const RandomAccessFile> file;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // by offset; no two share a byte or a name
};

// Reads no more than what stands before the weights, and takes no more memory than in proportion to that. INVALID_ARGUMENT
// naming file, field, found and allowed for everything that the format forbids: counts, lengths, types, shapes and offsets that
// do not fit the file; keys or names that repeat; tensors that overlap; an end before the last tensor's.
absl::StatusOr<GgufFile> ReadGguf(std::shared_ptr<const RandomAccessFile> file);

}  // namespace moed
