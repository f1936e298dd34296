#include "server/metrics/rate_sampler.h"

namespace moed {

LookupTotals TotalsOf(const ExpertStats& stats) {
  LookupTotals totals;
  for (const LayerStats& layer : stats.layers) {
    for (const auto& by_result : layer.lookups) {
      totals.hits += by_result[static_cast<size_t>(LookupResult::kHit)];
      totals.misses +=
          by_result[static_cast<size_t>(LookupResult::kMiss)] + by_result[static_cast<size_t>(LookupResult::kInflight)];
    }
  }
  for (const auto& by_reason : stats.load_bytes) {
    for (uint64_t bytes : by_reason) totals.bytes_read += bytes;
  }
  return totals;
}

void RateSampler::Sample() { windows_.Add(Snapshot()); }

CounterSnapshot RateSampler::Snapshot() const {
  CounterSnapshot snapshot;
  snapshot.nanos = clock_.NowNanos();
  const RequestMetrics::Totals requests = requests_.totals();
  snapshot.tpot_sum_seconds = requests.tpot_sum_seconds;
  snapshot.tpot_count = requests.tpot_count;
  const LoadedModel* model = state_.loaded();
  if (model == nullptr) return snapshot;
  const LookupTotals lookups = TotalsOf(model->expert_stats());
  snapshot.hits = lookups.hits;
  snapshot.lookups = lookups.hits + lookups.misses;
  snapshot.bytes_read = lookups.bytes_read;
  snapshot.generated_tokens = model->engine->Stats().generated_tokens;
  return snapshot;
}

}  // namespace moed
