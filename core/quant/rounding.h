// Round to nearest, ties to even, as plain additions: the same bits on every processor, and vectorisable without SSE4.1.
#pragma once

namespace moed {

inline constexpr float kRoundingShift = 0x1.8p23f;  // the unit in the last place of kRoundingShift + x is 1

// |x| < 2^22.
constexpr float RoundToEven(float x) { return (x + kRoundingShift) - kRoundingShift; }

}  // namespace moed
