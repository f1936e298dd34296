#include "server/metrics/window_rates.h"

#include <algorithm>

namespace moed {

void WindowRates::Add(const CounterSnapshot& snapshot) {
  absl::MutexLock lock(&mutex_);
  ring_.push_back(snapshot);
  // The second one still covers the longest window: the first is never needed again.
  while (ring_.size() > 1 && snapshot.nanos - ring_[1].nanos >= kMaxWindowNanos) ring_.pop_front();
}

Rates WindowRates::Over(int64_t window_nanos, const CounterSnapshot& now) const {
  CounterSnapshot from = now;
  {
    absl::MutexLock lock(&mutex_);
    if (ring_.empty()) return {};
    const int64_t start = now.nanos - std::min(window_nanos, kMaxWindowNanos);
    const auto after = std::find_if(ring_.begin(), ring_.end(), [&](const CounterSnapshot& s) { return s.nanos > start; });
    from = after == ring_.begin() ? ring_.front() : *(after - 1);
  }
  Rates rates;
  if (now.nanos <= from.nanos) return rates;
  const auto ratio = [](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
  rates.window_seconds = static_cast<double>(now.nanos - from.nanos) * 1e-9;
  rates.hit_ratio = ratio(static_cast<double>(now.hits - from.hits), static_cast<double>(now.lookups - from.lookups));
  rates.bytes_per_second = static_cast<double>(now.bytes_read - from.bytes_read) / rates.window_seconds;
  rates.tokens_per_second = static_cast<double>(now.generated_tokens - from.generated_tokens) / rates.window_seconds;
  rates.mean_tpot_seconds =
      ratio(now.tpot_sum_seconds - from.tpot_sum_seconds, static_cast<double>(now.tpot_count - from.tpot_count));
  return rates;
}

}  // namespace moed
