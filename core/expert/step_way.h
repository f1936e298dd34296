// How a step of a backend that gains by it ran: whole, without a wait for the host, or layer by layer, and why.
#pragma once

#include <cstdint>

namespace moed {

enum class StepWay : uint8_t { kWhole, kManyRows, kNotExact, kMasked, kWatched, kOfItsModel, kNotAllThere };
inline constexpr int kStepWays = 7;

}  // namespace moed
