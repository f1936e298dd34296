// A checkpoint's tensors divided into those that its family asks for.
#pragma once

#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/model/family.h"
#include "tools/pack/source_tensor.h"

namespace moed {

// Where the whole of a part is among `tensors`, the part takes its place. INVALID_ARGUMENT naming file, tensor, expected and
// found for a whole of another shape.
absl::Status DivideTensors(std::span<const TensorPart> parts, absl::flat_hash_map<std::string, SourceTensor>& tensors);

}  // namespace moed
