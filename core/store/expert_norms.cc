#include "core/store/expert_norms.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/status.h"

namespace moed {

TensorInfo ExpertNormsTensor(const StoreDescription& description) {
  return {.name = std::string(kExpertNorms),
          .format = FormatId::kF32,
          .vector = true,
          .rows = 1,
          .cols = static_cast<int>(description.moe_layers.size()) * description.experts_per_layer};
}

absl::StatusOr<std::vector<float>> ReadExpertNorms(const StoreReader& store) {
  MOED_ASSIGN_OR_RETURN(const TensorInfo* tensor, store.FindTensor(kExpertNorms));
  const TensorInfo expected = ExpertNormsTensor(store.description());
  if (!tensor->vector || tensor->cols != expected.cols) {
    return DataLoss(store.path(), ": the trunk tensor ", kExpertNorms, " has ", tensor->cols, " numbers, expected a vector of ",
                    expected.cols);
  }
  std::vector<float> norms(static_cast<size_t>(tensor->cols));
  MOED_RETURN_IF_ERROR(store.ReadTensor(*tensor, std::as_writable_bytes(std::span(norms))));
  const auto bad = std::ranges::find_if(norms, [](float norm) { return !(norm >= 0 && std::isfinite(norm)); });
  if (bad != norms.end()) {
    return DataLoss(store.path(), ": number ", bad - norms.begin(), " of ", kExpertNorms, " is ", *bad, ", no norm");
  }
  return norms;
}

}  // namespace moed
