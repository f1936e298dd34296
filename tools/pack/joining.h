// What makes one matrix of the tensors of codes, scales and zeros that stand for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tools/pack/quantized_rows.h"
#include "tools/pack/source_tensor.h"

namespace moed {

using SourceTensors = absl::flat_hash_map<std::string, SourceTensor>;

// INVALID_ARGUMENT naming file and tensor.
absl::Status WrongTensor(const SourceTensor& tensor, const absl::Status& status);
// Moves it out of `tensors`; what is missing belongs to `of`.
absl::StatusOr<SourceTensor> TakeTensor(const std::string& name, const SourceTensor& of, SourceTensors& tensors);
absl::Status CheckTensor(const SourceTensor& tensor, std::string_view type, const std::vector<uint64_t>& shape);
absl::Status CheckMatrix(const SourceTensor& tensor);
// Sorted.
std::vector<std::string> NamesEndingWith(std::string_view end, const SourceTensors& tensors);
FilePlace PlaceOf(const SourceTensor& tensor);
absl::Status AddJoined(SourceTensor matrix, SourceTensors& tensors);

}  // namespace moed
