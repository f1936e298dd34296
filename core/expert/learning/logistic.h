// The probability that has these log odds: what every learned weight of the experts' routing goes through.
#pragma once

#include <cmath>

namespace moed {

inline float Logistic(float log_odds) { return 1 / (1 + std::exp(-log_odds)); }

}  // namespace moed
