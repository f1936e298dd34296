// Decimal numbers between bounds.
#pragma once

#include <cstdint>
#include <optional>

#include "core/grammar/program.h"

namespace moed::grammar {

constexpr int kMostWholeDigits = 18;  // before the point: what an int64 holds whatever they are

// The whole numbers from `least` to `most`, both included, without leading zeros; 0 <= least <= most. Without `most`, up to
// kMostWholeDigits digits.
Pc WholeNumbers(uint64_t least, std::optional<uint64_t> most, ProgramBuilder& builder, Pc next);

}  // namespace moed::grammar
