#include "core/expert/swapmoe/frequency.h"

#include <algorithm>
#include <utility>

namespace moed {
namespace {

constexpr int kLargestWindow = 1 << 20;

}  // namespace

SwapMoeFrequency::SwapMoeFrequency(const SwapMoeFrequencyOptions& options)
    : options_(options), window_(options.window), settled_(options.growth <= 1) {}

void SwapMoeFrequency::OnStep(int tokens, double seconds) {
  if (tokens != tokens_) {
    tokens_ = tokens;
    best_.reset();
    steps_ = 0;
    seconds_ = 0;
  }
  ++steps_;
  seconds_ += seconds;
}

void SwapMoeFrequency::OnWindowEnd(bool late) {
  if (settled_) return;
  late_ = late_ || late;
  if (steps_ < options_.judged_steps) return;
  const double mean = std::exchange(seconds_, 0) / std::exchange(steps_, 0);
  const bool slower = std::exchange(late_, false) || (best_ && mean > *best_ * (1 + options_.tolerance));
  best_ = best_ ? std::min(*best_, mean) : mean;
  Judge(slower);
}

void SwapMoeFrequency::Judge(bool slower) {
  if (slower && good_) {
    window_ = *good_;
    settled_ = true;
    return;
  }
  if (slower) {
    lowering_ = true;
    window_ = static_cast<int>(std::min<double>(kLargestWindow, window_ * options_.growth));
    settled_ = window_ == kLargestWindow;
    return;
  }
  good_ = window_;
  const int shorter = std::max(options_.least_window, static_cast<int>(window_ / options_.growth));
  settled_ = lowering_ || shorter >= window_;
  if (!settled_) window_ = shorter;
}

}  // namespace moed
