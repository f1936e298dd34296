// Whether a layer's set has an expert, as its mask shows it.
#pragma once

#include <vector>

#include "core/expert/swapmoe/experts.h"
#include "tests/expert/provider_rig.h"

namespace moed {

// Where nothing is resident an answer may use the set. What the mask had seen of the layer is forgotten.
inline bool InSet(SwapMoeExperts& experts, const ExpertKey& key) {
  std::vector<uint8_t> usable(kExperts);
  experts.Usable(
      key.layer, Phase::kDecode, [](int32_t) { return false; }, usable);
  return usable[static_cast<size_t>(key.expert)] != 0;
}

}  // namespace moed
