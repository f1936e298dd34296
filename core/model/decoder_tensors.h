// Checkpoint names that the families have in common; they differ in the name of the block that holds the experts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/family.h"

namespace moed {

// What a family calls the router and the experts of model.layers.N: `block`.`router`.weight, `block`.experts.
struct MoeNames {
  std::string_view block = "mlp";
  std::string_view router = "gate";
};

// All trunk tensors of `spec`.
std::vector<TrunkTensor> DecoderTensors(const ModelSpec& spec, const MoeNames& names);
// "model.layers.3.mlp.experts.7.gate_proj.weight".
std::string ExpertTensorName(LayerId layer, std::string_view moe_block, int expert, std::string_view projection);
// The same with the projections named gate_proj, up_proj, down_proj in a block "mlp".
std::string MlpExpertTensor(LayerId layer, int expert, ExpertPart part);

}  // namespace moed
