// Feeds the windows of rates from the running server.
#pragma once

#include "core/base/clock.h"
#include "server/metrics/request_metrics.h"
#include "server/metrics/window_rates.h"
#include "server/rpc/server_state.h"

namespace moed {

struct LookupTotals {
  uint64_t hits = 0;
  uint64_t misses = 0;  // in flight included
  uint64_t bytes_read = 0;
};
LookupTotals TotalsOf(const ExpertStats& stats);

// Thread-safe. All arguments outlive it.
class RateSampler {
 public:
  RateSampler(const ServerState& state, const RequestMetrics& requests, const Clock& clock)
      : state_(state), requests_(requests), clock_(clock) {}

  void Sample();  // about once a second
  Rates Over(int64_t window_nanos) const { return windows_.Over(window_nanos, Snapshot()); }

 private:
  CounterSnapshot Snapshot() const;

  const ServerState& state_;
  const RequestMetrics& requests_;
  const Clock& clock_;
  WindowRates windows_;
};

}  // namespace moed
