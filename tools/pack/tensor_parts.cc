#include "tools/pack/tensor_parts.h"

#include <utility>

#include "core/base/status.h"

namespace moed {

absl::Status DivideTensors(std::span<const TensorPart> parts, absl::flat_hash_map<std::string, SourceTensor>& tensors) {
  absl::flat_hash_map<std::string, SourceTensor> wholes;
  for (const TensorPart& part : parts) {
    if (const auto at = tensors.find(part.whole); at != tensors.end()) {
      const SourceTensor& whole = at->second;
      if (whole.shape != part.whole_shape) {
        return InvalidArgument(whole.file->path(), ": tensor \"", whole.name, "\" has shape ", ShapeName(whole.shape),
                               ", expected ", ShapeName(part.whole_shape));
      }
      wholes.emplace(part.whole, std::move(at->second));
      tensors.erase(at);
    }
    const auto whole = wholes.find(part.whole);
    if (whole == wholes.end()) continue;
    SourceTensor own = whole->second;
    own.name = part.name;
    own.shape = {static_cast<uint64_t>(part.rows), static_cast<uint64_t>(part.cols)};
    own.offset += part.offset * own.type->bytes;
    own.bytes = ((part.rows - 1) * part.row_stride + (part.cols - 1) * part.col_stride + 1) * own.type->bytes;
    own.row_stride = part.row_stride;
    own.col_stride = part.col_stride;
    const auto [at, inserted] = tensors.emplace(part.name, std::move(own));
    if (!inserted) return InvalidArgument("tensor \"", part.name, "\" is there by itself and in \"", part.whole, "\"");
  }
  return absl::OkStatus();
}

}  // namespace moed
