#include "core/expert/swapmoe/frequency.h"

#include <algorithm>

namespace moed {
namespace {

constexpr int kLargestWindow = 1 << 20;
constexpr int kTrials = 3;  // of a window that seems slower: the mean of all of them counts

}  // namespace

SwapMoeFrequency::SwapMoeFrequency(const SwapMoeFrequencyOptions& options)
    : options_(options), window_(options.window), settled_(options.growth <= 1) {}

void SwapMoeFrequency::OnStep(int tokens, double seconds) {
  if (tokens != tokens_) {
    tokens_ = tokens;
    best_.reset();
    BeginWindow();
  }
  ++steps_;
  seconds_ += seconds;
}

void SwapMoeFrequency::BeginWindow() {
  steps_ = 0;
  seconds_ = 0;
  trials_ = 0;
  late_ = false;
}

void SwapMoeFrequency::OnWindowEnd(bool late) {
  if (settled_) return;
  late_ = late_ || late;
  if (steps_ < options_.judged_steps * (trials_ + 1)) return;
  ++trials_;
  const double mean = seconds_ / steps_;
  const bool slower = best_ && mean > *best_ * (1 + options_.tolerance);
  if (slower && !late_ && trials_ < kTrials) return;  // one mean may be noise
  best_ = best_ ? std::min(*best_, mean) : mean;
  const bool too_often = slower || late_;
  BeginWindow();
  Judge(too_often);
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
