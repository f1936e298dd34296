#include "core/engine/step_size.h"

#include <algorithm>
#include <cmath>

namespace moed {

void StepSize::OnStep(int tokens, double seconds, double waited_seconds) {
  const double computed = seconds - waited_seconds;
  if (tokens <= 0 || waited_seconds < 0 || computed <= 0) return;
  const double next = std::clamp(share_ * tokens * seconds / computed, static_cast<double>(least_), static_cast<double>(most_));
  if (next < tokens_ && tokens < tokens_) return;  // there were no more to compute
  tokens_ = static_cast<int>(std::lround(next));
}

}  // namespace moed
