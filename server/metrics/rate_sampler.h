// Feeds the windows of rates from the running server.
#pragma once

#include "core/base/clock.h"
#include "server/metrics/model_counters.h"
#include "server/metrics/request_metrics.h"
#include "server/metrics/window_rates.h"

namespace moed {

// Thread-safe. All arguments outlive it.
class RateSampler {
 public:
  RateSampler(const ModelCounters& counters, const RequestMetrics& requests, const Clock& clock)
      : counters_(counters), requests_(requests), clock_(clock) {}

  void Sample();  // about once a second
  Rates Over(int64_t window_nanos) const { return windows_.Over(window_nanos, Snapshot()); }

 private:
  CounterSnapshot Snapshot() const;

  const ModelCounters& counters_;
  const RequestMetrics& requests_;
  const Clock& clock_;
  WindowRates windows_;
};

}  // namespace moed
