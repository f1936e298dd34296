// Rates over the last seconds, from a ring of snapshots of counters that only grow.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {

struct CounterSnapshot {
  int64_t nanos = 0;
  uint64_t hits = 0;
  uint64_t lookups = 0;
  uint64_t bytes_read = 0;
  uint64_t generated_tokens = 0;
  double tpot_sum_seconds = 0;  // of ended requests with two tokens or more
  uint64_t tpot_count = 0;
};

struct Rates {
  double window_seconds = 0;  // what was there to look at; the rest is 0 when this is
  double hit_ratio = 0;
  double bytes_per_second = 0;
  double tokens_per_second = 0;
  double mean_tpot_seconds = 0;
};

inline constexpr int64_t kMaxWindowNanos = 60'000'000'000;
inline constexpr int64_t kDefaultWindowNanos = 10'000'000'000;

// Thread-safe.
class WindowRates {
 public:
  // In ascending order of time; what lies further back than the longest window is forgotten.
  void Add(const CounterSnapshot& snapshot);
  // From the newest snapshot that is at least `window_nanos` (cut to the longest) older than `now`, or the oldest there is, to
  // `now`.
  Rates Over(int64_t window_nanos, const CounterSnapshot& now) const;

 private:
  mutable absl::Mutex mutex_;
  std::deque<CounterSnapshot> ring_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
