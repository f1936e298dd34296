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
#include "core/quant/block_type.h"

namespace moed {

// Makes rows whose blocks the file does not have as they are. Thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Rows first .. first + count, one behind the other.
  virtual absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const = 0;
};

struct SourceTensor {
  std::string name;
  const BlockType* type = nullptr;
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
  // Of a matrix whose rows stand in another order, or among those of others: row r lies where row row_order[r] would. Empty: as
  // they are.
  std::vector<uint32_t> row_order;
  // Of a matrix that is made on reading; null: it lies at `offset`.
  std::shared_ptr<const RowSource> rows;
  // Of a vector of a quantised matrix: quantisers write it whether the model has one or not, and zeros may mean none.
  bool zeros_mean_none = false;

  uint64_t row_bytes() const { return shape.back() / static_cast<uint64_t>(type->block_columns) * type->block_bytes; }
  // Holds the same numbers exactly and can be encoded from float32.
  FormatId number_format() const { return type->block_columns == 1 ? type->kept : FormatId::kF32; }
};

// A matrix of blocks as float32 numbers one by one, decoded on reading: for what takes it apart.
SourceTensor AsNumbers(SourceTensor matrix);

// Rows first .. first + count of a matrix without strides, one behind the other; a vector is one row.
// `out` is resized.
absl::Status ReadRows(const SourceTensor& tensor, uint64_t first, uint64_t count, std::vector<std::byte>& out);

}  // namespace moed
