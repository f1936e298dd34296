#include "server/metrics/rate_sampler.h"

namespace moed {

void RateSampler::Sample() { windows_.Add(Snapshot()); }

CounterSnapshot RateSampler::Snapshot() const {
  CounterSnapshot snapshot;
  snapshot.nanos = clock_.NowNanos();
  const RequestMetrics::Totals requests = requests_.totals();
  snapshot.tpot_sum_seconds = requests.tpot_sum_seconds;
  snapshot.tpot_count = requests.tpot_count;
  counters_.AddTo(snapshot);
  return snapshot;
}

}  // namespace moed
