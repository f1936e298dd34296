// What checkpoints of Granite have in common.
#pragma once

#include <vector>

#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/family.h"

namespace moed {

// The multipliers of embeddings, attention, residuals and logits, and the experts.
void ReadGranite(ConfigReader& config, ModelSpec& spec);
inline constexpr DecoderNames kGraniteNames = {.block = kSparseBlock, .router = "router.layer", .shared = "shared_mlp"};
// The experts, of which a layer has all in one tensor, gate before up. Their names are MlpExpertTensor's.
std::vector<TensorPart> GraniteExpertParts(const ModelSpec& spec);
// A layer's shared expert, whose gate and up are one tensor.
void AddGraniteShared(const ModelSpec& spec, int layer, std::vector<TensorPart>& parts);

}  // namespace moed
