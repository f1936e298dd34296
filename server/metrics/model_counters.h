// What a model counts, across models: a counter goes on where that of the model before ended.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/metrics/window_rates.h"
#include "server/process/metric_families.h"
#include "server/rpc/server_state.h"

namespace moed {

// Thread-safe.
class ModelCounters {
 public:
  // From now on `model` counts, until Retire, which it outlives. None counts at the moment.
  void Observe(const LoadedModel* model);
  // What the model has counted is kept; nothing of it is used any more. Nothing without a model.
  void Retire();

  // Lookups, bytes and tokens of all models.
  void AddTo(CounterSnapshot& snapshot) const;
  // Those of the model at hand, zeros at first; their counters and histograms, and those of models before it, all added up.
  void Collect(MetricFamilies& families) const;

 private:
  mutable absl::Mutex mutex_;
  const LoadedModel* model_ ABSL_GUARDED_BY(mutex_) = nullptr;
  CounterSnapshot retired_ ABSL_GUARDED_BY(mutex_);
  MetricFamilies retired_families_ ABSL_GUARDED_BY(mutex_);  // counters and histograms alone
};

}  // namespace moed
