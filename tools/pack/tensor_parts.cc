#include "tools/pack/tensor_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "core/base/shape_name.h"
#include "core/base/status.h"
#include "core/quant/safetensors_types.h"
#include "tools/pack/quantized_rows.h"

namespace moed {

namespace {

using Tensors = absl::flat_hash_map<std::string, SourceTensor>;

constexpr std::string_view kBytes = "U8";

// Tensors one below the other, as one file.
class StackedFile final : public RandomAccessFile {
 public:
  // Of the same size.
  explicit StackedFile(std::vector<SourceTensor> tensors) : tensors_(std::move(tensors)) {}

  uint64_t size() const override { return tensors_.size() * each(); }
  const std::string& path() const override { return tensors_.front().file->path(); }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const uint64_t index = offset / each(), at = offset % each();
      if (index >= tensors_.size()) return DataLoss(path(), ": ", offset, " is behind the last of ", tensors_.size(), " tensors");
      const std::span<std::byte> own = out.first(std::min<uint64_t>(out.size(), each() - at));
      MOED_RETURN_IF_ERROR(tensors_[index].file->ReadAt(tensors_[index].offset + at, own));
      offset += own.size();
      out = out.subspan(own.size());
    }
    return absl::OkStatus();
  }

 private:
  uint64_t each() const { return tensors_.front().bytes; }
  const std::vector<SourceTensor> tensors_;
};

// Puts the whole of tensors that stand one below the other in their place; nothing where the first is not there.
absl::Status Stack(const TensorPart& part, Tensors& tensors) {
  if (part.stacked.empty() || !tensors.contains(part.stacked.front())) return absl::OkStatus();
  std::vector<uint64_t> shape = part.whole_shape;
  shape[0] /= part.stacked.size();
  std::vector<SourceTensor> found;
  for (const std::string& name : part.stacked) {
    const auto at = tensors.find(name);
    if (at == tensors.end()) {
      return InvalidArgument(found.front().file->path(), ": tensor \"", name, "\" is missing beside \"", part.stacked.front(),
                             "\"");
    }
    SourceTensor tensor = std::move(at->second);
    tensors.erase(at);
    if (tensor.shape != shape) {
      return InvalidArgument(tensor.file->path(), ": tensor \"", name, "\" has shape ", ShapeName(tensor.shape), ", expected ",
                             ShapeName(shape));
    }
    const BlockType* const type = found.empty() ? tensor.type : found.front().type;
    if (tensor.type != type || tensor.type->block_columns > 1 || tensor.rows != nullptr) {
      return InvalidArgument(tensor.file->path(), ": tensor \"", name, "\" is ", tensor.type->name, ", expected numbers, of ",
                             type->name, " as those of \"", part.stacked.front(), "\"");
    }
    found.push_back(std::move(tensor));
  }
  SourceTensor whole = {.name = part.whole, .type = found.front().type, .shape = part.whole_shape};
  whole.file = std::make_shared<StackedFile>(std::move(found));
  whole.bytes = whole.file->size();
  tensors.emplace(part.whole, std::move(whole));
  return absl::OkStatus();
}

// Moves a tensor from `tensors` to `wholes` where it is not there yet; null when it is in neither.
absl::StatusOr<const SourceTensor*> TakeWhole(const std::string& name, const std::vector<uint64_t>& shape, bool bytes,
                                              Tensors& tensors, Tensors& wholes) {
  if (const auto at = tensors.find(name); at != tensors.end()) {
    const SourceTensor& whole = at->second;
    if (whole.shape != shape) {
      return InvalidArgument(whole.file->path(), ": tensor \"", name, "\" has shape ", ShapeName(whole.shape), ", expected ",
                             ShapeName(shape));
    }
    if (bytes ? whole.type->name != kBytes : !whole.type->is_numbers()) {
      return InvalidArgument(whole.file->path(), ": tensor \"", name, "\" is ", whole.type->name, ", expected ",
                             bytes ? kBytes : "numbers");
    }
    wholes.emplace(name, std::move(at->second));
    tensors.erase(at);
  }
  const auto whole = wholes.find(name);
  return whole == wholes.end() ? nullptr : &whole->second;
}

absl::Status MakeMxfp4(const TensorPart& part, Tensors& tensors, Tensors& wholes, SourceTensor& own) {
  const std::vector<uint64_t> shape(part.whole_shape.begin(), part.whole_shape.end() - 1);
  MOED_ASSIGN_OR_RETURN(const SourceTensor* scales, TakeWhole(part.scales, shape, true, tensors, wholes));
  if (scales == nullptr)
    return InvalidArgument(own.file->path(), ": tensor \"", part.scales, "\" is missing beside \"", part.whole, "\"");
  const int columns = kMxfp4Blocks.block_columns;
  if (part.cols % columns != 0) {
    return InvalidArgument(own.file->path(), ": tensor \"", part.whole, "\": ", part.cols, " columns are no multiple of ",
                           columns);
  }
  own.type = &kMxfp4Blocks;
  own.rows = Mxfp4Rows({own.file, own.offset + part.offset / 2}, {scales->file, scales->offset + part.offset / columns},
                       part.cols, part.row_stride / part.cols);
  return absl::OkStatus();
}

// Whether its rows are rows of the whole, which stay blocks then.
bool IsOfWholeRows(const TensorPart& part) {
  const int64_t cols = part.cols;
  const bool whole = part.whole_shape.back() == static_cast<uint64_t>(cols) && part.col_stride == 1;
  return whole && part.offset % cols == 0 && part.row_stride % cols == 0 && part.group_stride % cols == 0;
}

// In numbers of the whole.
int64_t RowAt(const TensorPart& part, int64_t row) {
  const int64_t group = part.group_rows > 0 ? part.group_rows : part.rows;
  return row / group * part.group_stride + row % group * part.row_stride;
}

void TakeRows(const TensorPart& part, SourceTensor& own) {
  std::vector<uint32_t> rows;
  for (int row = 0; row < part.rows; ++row) {
    const auto at = static_cast<uint32_t>((part.offset + RowAt(part, row)) / part.cols);
    rows.push_back(own.row_order.empty() ? at : own.row_order[at]);
  }
  own.row_order = std::move(rows);
}

void TakeNumbers(const TensorPart& part, SourceTensor& own) {
  own.row_stride = part.row_stride;
  own.col_stride = part.col_stride;
  own.group_rows = part.group_rows;
  own.group_stride = part.group_stride;
  own.offset += part.offset * own.type->block_bytes;
  own.bytes = (RowAt(part, part.rows - 1) + (part.cols - 1) * part.col_stride + 1) * own.type->block_bytes;
}

// Wholes that have a shape that a part asks for: parts that ask for another one of the same whole are another spelling's.
absl::flat_hash_set<std::string> Fitting(std::span<const TensorPart> parts, const Tensors& tensors) {
  absl::flat_hash_set<std::string> fitting;
  for (const TensorPart& part : parts) {
    const auto whole = tensors.find(part.whole);
    if (whole != tensors.end() && whole->second.shape == part.whole_shape) fitting.insert(part.whole);
  }
  return fitting;
}

bool HasShape(const TensorPart& part, const Tensors& tensors, const Tensors& wholes) {
  const auto here = tensors.find(part.whole);
  return (here != tensors.end() ? here : wholes.find(part.whole))->second.shape == part.whole_shape;
}

}  // namespace

absl::Status DivideTensors(std::span<const TensorPart> parts, Tensors& tensors) {
  Tensors wholes;
  const absl::flat_hash_set<std::string> fitting = Fitting(parts, tensors);
  for (const TensorPart& part : parts) {
    if (fitting.contains(part.whole) && !HasShape(part, tensors, wholes)) continue;
    const bool mxfp4 = !part.scales.empty();
    MOED_RETURN_IF_ERROR(Stack(part, tensors));
    MOED_ASSIGN_OR_RETURN(const SourceTensor* whole, TakeWhole(part.whole, part.whole_shape, mxfp4, tensors, wholes));
    if (whole == nullptr) continue;
    // Blocks, and rows in an order of their own.
    const bool rows_alone = !mxfp4 && (whole->type->block_columns > 1 || !whole->row_order.empty());
    SourceTensor own = rows_alone && !IsOfWholeRows(part) ? AsNumbers(*whole) : *whole;
    own.name = part.name;
    own.shape = {static_cast<uint64_t>(part.rows), static_cast<uint64_t>(part.cols)};
    if (mxfp4) {
      MOED_RETURN_IF_ERROR(MakeMxfp4(part, tensors, wholes, own));
    } else if (rows_alone && IsOfWholeRows(part)) {
      TakeRows(part, own);
    } else {
      TakeNumbers(part, own);
    }
    const auto [at, inserted] = tensors.emplace(part.name, std::move(own));
    if (!inserted) return InvalidArgument("tensor \"", part.name, "\" is there by itself and in \"", part.whole, "\"");
  }
  return absl::OkStatus();
}

}  // namespace moed
