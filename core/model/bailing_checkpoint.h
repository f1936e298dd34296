// What checkpoints of BailingMoE's kind call their tensors: Ling, Ring and Sarvam.
#pragma once

#include <vector>

#include "core/model/family.h"

namespace moed {

std::vector<TrunkTensor> BailingTensors(const ModelSpec& spec);
// Queries, keys and values, which are rows of one matrix.
std::vector<TensorPart> BailingParts(const ModelSpec& spec);

}  // namespace moed
