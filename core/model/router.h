// Which experts a token goes to. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "core/expert/routing.h"

namespace moed {

// The most probable experts of one token, highest first, ties to the lower index; `normalize`: divided by their sum, added in
// that order. probabilities (experts), choices (top_k <= experts).
void ChooseExperts(std::span<const float> probabilities, bool normalize, std::span<ExpertChoice> choices);

// Sorts the slots of all tokens by expert. choices (tokens * top_k); begin (experts + 1); slots (tokens * top_k).
void GroupByExpert(std::span<const ExpertChoice> choices, std::span<int32_t> begin, std::span<int32_t> slots);

}  // namespace moed
