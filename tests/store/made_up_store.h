// How tests describe a store of made-up weights of a family: experts of one format, the trunk as moed-pack lays it out.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/model/spec.h"
#include "core/store/layout.h"
#include "tools/pack/plan.h"

namespace moed {

// Without a tokenizer.
inline absl::StatusOr<StoreDescription> DescribeMadeUpStore(const ModelSpec& spec, FormatId experts) {
  StoreDescription description;
  description.model_spec = SpecToJson(spec);
  description.moe_layers = spec.MoeLayers();
  description.experts_per_layer = spec.experts;
  description.precisions = {LayOutExperts(experts, ExpertShapes(spec), description.moe_layers.size())};
  MOED_ASSIGN_OR_RETURN(const Family* family, FamilyNamed(spec.family));
  for (const TrunkTensor& tensor : family->trunk_tensors(spec)) {
    const bool vector = tensor.role == TensorRole::kVector;
    const FormatId format = vector ? FormatId::kF32 : tensor.role == TensorRole::kRouter ? FormatId::kBF16 : FormatId::kQ8;
    description.trunk.push_back({tensor.store_name, format, vector, tensor.stored_rows(), tensor.stored_cols()});
  }
  description.trunk.push_back(
      {std::string(kInverseFrequencies), FormatId::kF32, true, 1, spec.FirstFrequency(spec.rotation_count())});
  LayOutTrunk(description);
  return description;
}

}  // namespace moed
