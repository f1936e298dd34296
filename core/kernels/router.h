// Which experts a token goes to, as every backend chooses them. Pure.
#pragma once

#include <span>

#include "core/base/expert_choice.h"

namespace moed {

// The most probable experts of one token, highest first, ties to the lower index; `normalize`: divided by their sum, added in
// that order. probabilities (experts), choices (top_k <= experts).
void ChooseExperts(std::span<const float> probabilities, bool normalize, std::span<ExpertChoice> choices);

}  // namespace moed
