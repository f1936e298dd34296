// The Frobenius norm of every expert, all its matrices together at the reference precision: a trunk tensor that moed-pack
// writes and stores of earlier versions lack.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/store/store.h"

namespace moed {

inline constexpr std::string_view kExpertNorms = "expert_norms";

TensorInfo ExpertNormsTensor(const StoreDescription& description);
// (MoE layers, experts). NOT_FOUND: the store has none. DATA_LOSS: another shape, a number that is no norm.
absl::StatusOr<std::vector<float>> ReadExpertNorms(const StoreReader& store);

}  // namespace moed
