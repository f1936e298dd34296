#include "core/engine/shared_step.h"

#include <algorithm>
#include <cmath>

namespace moed {
namespace {

// Of the tokens that would have been computed while the step lasted: more would make it longer. A step that waited for nothing is
// followed by a smaller one.
constexpr double kShare = .75;

}  // namespace

void SharedStep::OnStep(int tokens, double seconds, double waited_seconds) {
  const double computed = seconds - waited_seconds;
  if (tokens <= 0 || waited_seconds < 0 || computed <= 0) return;
  const double next = std::clamp(kShare * tokens * seconds / computed, static_cast<double>(least_), static_cast<double>(most_));
  if (next < tokens_ && tokens < tokens_) return;  // there were no more to compute
  tokens_ = static_cast<int>(std::lround(next));
}

}  // namespace moed
