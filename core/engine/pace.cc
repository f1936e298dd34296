#include "core/engine/pace.h"

#include <algorithm>

namespace moed {
namespace {

constexpr double kStepMemory = .98;      // about 50 steps
constexpr double kRequestMemory = .875;  // about 8 requests
constexpr double kFastestMemory = .999;  // about 1,000 steps with prompts

}  // namespace

void Pace::OnStep(int tokens, int prefilled, int64_t nanos) {
  if (tokens <= 0 || nanos <= 0) return;
  const double seconds = static_cast<double>(nanos) * 1e-9;
  tokens_ = tokens_ * kStepMemory + tokens;
  seconds_ = seconds_ * kStepMemory + seconds;
  if (prefilled == 0) return;
  // What else the step computed is counted as if it were of the prompt: the rate is never too low.
  fastest_prefill_ = std::max(fastest_prefill_ * kFastestMemory, tokens / seconds);
  largest_prefill_ = std::max(largest_prefill_, tokens);
}

void Pace::OnEnd(int tokens) {
  if (tokens <= 0) return;
  const bool first = tokens_per_request_ == 0;
  tokens_per_request_ = first ? tokens : tokens_per_request_ * kRequestMemory + tokens * (1 - kRequestMemory);
}

std::optional<double> Pace::PrefillSeconds(int tokens, int max_step_tokens) const {
  if (fastest_prefill_ <= 0 || std::min(tokens, max_step_tokens) > largest_prefill_) return std::nullopt;
  return tokens / fastest_prefill_;
}

}  // namespace moed
