#include "tools/pack/tensor_parts.h"

#include <utility>

#include "core/base/shape_name.h"
#include "core/base/status.h"
#include "core/quant/safetensors_types.h"
#include "tools/pack/quantized_rows.h"

namespace moed {

namespace {

using Tensors = absl::flat_hash_map<std::string, SourceTensor>;

constexpr std::string_view kBytes = "U8";

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
    const bool blocks = whole.type->block_columns > 1;
    wholes.emplace(name, blocks ? AsNumbers(std::move(at->second)) : std::move(at->second));
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

}  // namespace

absl::Status DivideTensors(std::span<const TensorPart> parts, Tensors& tensors) {
  Tensors wholes;
  for (const TensorPart& part : parts) {
    const bool mxfp4 = !part.scales.empty();
    MOED_ASSIGN_OR_RETURN(const SourceTensor* whole, TakeWhole(part.whole, part.whole_shape, mxfp4, tensors, wholes));
    if (whole == nullptr) continue;
    SourceTensor own = *whole;
    own.name = part.name;
    own.shape = {static_cast<uint64_t>(part.rows), static_cast<uint64_t>(part.cols)};
    if (mxfp4) {
      MOED_RETURN_IF_ERROR(MakeMxfp4(part, tensors, wholes, own));
    } else {
      own.row_stride = part.row_stride;
      own.col_stride = part.col_stride;
      own.group_rows = part.group_rows;
      own.group_stride = part.group_stride;
      own.offset += part.offset * own.type->block_bytes;
      const int group = part.group_rows > 0 ? part.group_rows : part.rows;
      const int64_t last_row = (part.rows - 1) / group * part.group_stride + (part.rows - 1) % group * part.row_stride;
      own.bytes = (last_row + (part.cols - 1) * part.col_stride + 1) * own.type->block_bytes;
    }
    const auto [at, inserted] = tensors.emplace(part.name, std::move(own));
    if (!inserted) return InvalidArgument("tensor \"", part.name, "\" is there by itself and in \"", part.whole, "\"");
  }
  return absl::OkStatus();
}

}  // namespace moed
