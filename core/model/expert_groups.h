// The chosen slots of all tokens, expert by expert. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/expert_choice.h"

namespace moed {

// Sorts the slots of all tokens by expert. choices (tokens * top_k); begin (experts + 1); slots (tokens * top_k).
void GroupByExpert(std::span<const ExpertChoice> choices, std::span<int32_t> begin, std::span<int32_t> slots);

}  // namespace moed
