// Tensors whose heads stand in another order than the store's.
#pragma once

#include "absl/status/status.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/source_tensor.h"

namespace moed {

// Puts the heads of `tensor` into the store's order. Rows and elements move as they are, columns too where blocks lie within
// heads; else the tensor becomes float32. INVALID_ARGUMENT naming file and tensor where it has another extent.
absl::Status PutHeadsInOrder(const GgufHeadOrder& order, SourceTensor& tensor);

}  // namespace moed
