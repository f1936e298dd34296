// The chosen slots of all tokens, expert by expert. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/expert_choice.h"

namespace moed {

inline constexpr int32_t kNoExpert = -1;  // a choice of none

// Sorts the slots of all tokens that chose an expert by it. choices (tokens * top_k); begin (experts + 1); slots (tokens *
// top_k).
void GroupByExpert(std::span<const ExpertChoice> choices, std::span<int32_t> begin, std::span<int32_t> slots);

}  // namespace moed
