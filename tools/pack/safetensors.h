// The safetensors file format: u64 length, a JSON header of that length, then the tensors' bytes without holes.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/file.h"
#include "tools/pack/source_tensor.h"

namespace moed {

// Every tensor of the file, by offset. INVALID_ARGUMENT naming file, tensor, expected and found for anything that the format
// forbids (holes, overlaps, sizes that do not fit, duplicate names) and for numbers of another type.
absl::StatusOr<std::vector<SourceTensor>> ReadSafetensors(std::shared_ptr<const RandomAccessFile> file);

}  // namespace moed
