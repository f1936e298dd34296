#include "tools/pack/joining.h"

#include <algorithm>
#include <utility>

#include "core/base/shape_name.h"
#include "core/base/status.h"

namespace moed {

absl::Status WrongTensor(const SourceTensor& tensor, const absl::Status& status) {
  return InvalidArgument(tensor.file->path(), ": tensor \"", tensor.name, "\": ", status.message());
}

absl::StatusOr<SourceTensor> TakeTensor(const std::string& name, const SourceTensor& of, SourceTensors& tensors) {
  const auto at = tensors.find(name);
  if (at == tensors.end()) return WrongTensor(of, InvalidArgument("\"", name, "\" is missing beside it"));
  SourceTensor tensor = std::move(at->second);
  tensors.erase(at);
  return tensor;
}

absl::Status CheckTensor(const SourceTensor& tensor, std::string_view type, const std::vector<uint64_t>& shape) {
  if (tensor.type->name != type) return WrongTensor(tensor, InvalidArgument("is ", tensor.type->name, ", expected ", type));
  if (tensor.shape != shape) {
    return WrongTensor(tensor, InvalidArgument("has shape ", ShapeName(tensor.shape), ", expected ", ShapeName(shape)));
  }
  return absl::OkStatus();
}

absl::Status CheckMatrix(const SourceTensor& tensor) {
  if (tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0) return absl::OkStatus();
  return WrongTensor(tensor, InvalidArgument("has shape ", ShapeName(tensor.shape), ", expected two extents of 1 or more"));
}

std::vector<std::string> NamesEndingWith(std::string_view end, const SourceTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (name.ends_with(end)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

FilePlace PlaceOf(const SourceTensor& tensor) { return {tensor.file, tensor.offset}; }

absl::Status AddJoined(SourceTensor matrix, SourceTensors& tensors) {
  const std::string name = matrix.name;
  if (tensors.emplace(name, std::move(matrix)).second) return absl::OkStatus();
  return InvalidArgument("tensor \"", name, "\" is there quantised and not quantised");
}

}  // namespace moed
