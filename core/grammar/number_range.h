// Decimal numbers between bounds.
#pragma once

#include <cstdint>
#include <optional>

#include "core/grammar/program.h"

namespace moed::grammar {

constexpr int kMostWholeDigits = 18;  // before the point: what an int64 holds whatever they are

// In units of the last of `places` digits behind the point, so that no rounding decides.
struct NumberBounds {
  std::optional<int64_t> least, most;
  int places = 0;
  int multiple = 1;  // of which every number is one
};

// The numbers within, both bounds included, without leading zeros or an exponent. They have up to kMostWholeDigits digits before
// the point, and up to `places` behind it.
Pc Numbers(const NumberBounds& bounds, ProgramBuilder& builder, Pc next);

}  // namespace moed::grammar
