#include "tools/pack/head_order.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/base/shape_name.h"
#include "core/base/status.h"

namespace moed {
namespace {

// Where the store's row, column or element lies in the file.
std::vector<uint32_t> Places(const GgufHeadOrder& order) {
  std::vector<uint32_t> places;
  for (int i = 0; i < order.first; ++i) places.push_back(static_cast<uint32_t>(i));
  for (int group = 0; group < order.groups; ++group) {
    for (int head = 0; head < order.heads; ++head) {
      const int in_file = head * order.groups + group;
      for (int i = 0; i < order.size; ++i) places.push_back(static_cast<uint32_t>(order.first + in_file * order.size + i));
    }
  }
  return places;
}

// Rows of a matrix whose columns move in heads, each of `head_bytes`.
class ColumnSource final : public RowSource {
 public:
  ColumnSource(SourceTensor matrix, const GgufHeadOrder& order, uint64_t head_bytes)
      : matrix_(std::move(matrix)), order_(order), head_bytes_(head_bytes) {}

  absl::Status Read(uint64_t first, uint64_t count, std::byte* out) const override {
    std::vector<std::byte> raw;
    MOED_RETURN_IF_ERROR(ReadRows(matrix_, first, count, raw));
    for (const std::byte* row = raw.data(); row != raw.data() + raw.size(); row += matrix_.row_bytes()) {
      for (int group = 0; group < order_.groups; ++group) {
        for (int head = 0; head < order_.heads; ++head, out += head_bytes_) {
          std::memcpy(out, row + static_cast<uint64_t>(head * order_.groups + group) * head_bytes_, head_bytes_);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const SourceTensor matrix_;
  const GgufHeadOrder order_;
  const uint64_t head_bytes_;
};

SourceTensor WithColumnsInOrder(const GgufHeadOrder& order, SourceTensor matrix) {
  if (order.size % matrix.type->block_columns != 0) matrix = AsNumbers(std::move(matrix));
  const auto head_bytes = static_cast<uint64_t>(order.size / matrix.type->block_columns) * matrix.type->block_bytes;
  SourceTensor ordered = matrix;
  ordered.rows = std::make_shared<ColumnSource>(std::move(matrix), order, head_bytes);
  return ordered;
}

}  // namespace

absl::Status PutHeadsInOrder(const GgufHeadOrder& order, SourceTensor& tensor) {
  const auto extent = static_cast<uint64_t>(order.first + order.groups * order.heads * order.size);
  const bool fits = !tensor.shape.empty() && (order.columns ? tensor.shape.back() : tensor.shape.front()) == extent;
  if (!fits || tensor.shape.size() > 2 || (order.columns && (tensor.shape.size() != 2 || order.first > 0))) {
    return InvalidArgument(tensor.file->path(), ": tensor \"", tensor.name, "\" has shape ", ShapeName(tensor.shape),
                           ", expected ", extent, order.columns ? " columns" : " rows");
  }
  if (order.columns) {
    tensor = WithColumnsInOrder(order, std::move(tensor));
    return absl::OkStatus();
  }
  const std::vector<uint64_t> shape = tensor.shape;
  tensor.row_order = Places(order);
  if (shape.size() == 2) return absl::OkStatus();
  tensor.shape = {extent, 1};
  tensor = AsNumbers(std::move(tensor));
  tensor.shape = shape;
  return absl::OkStatus();
}

}  // namespace moed
