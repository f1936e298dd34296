// Checkpoint names that the families have in common; they differ in the name of the block that holds the experts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/family.h"

namespace moed {

// All trunk tensors of `spec`, the router in model.layers.N.`moe_block`.
std::vector<TrunkTensor> DecoderTensors(const ModelSpec& spec, std::string_view moe_block);
// "model.layers.3.mlp.experts.7.gate_proj.weight".
std::string ExpertTensorName(LayerId layer, std::string_view moe_block, int expert, std::string_view projection);
// The same with the projections named gate_proj, up_proj, down_proj in a block "mlp".
std::string MlpExpertTensor(LayerId layer, int expert, ExpertPart part);

}  // namespace moed
