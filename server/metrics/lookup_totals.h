// Lookups and reads of experts, summed up.
#pragma once

#include <cstdint>

#include "core/expert/stats.h"

namespace moed {

struct LookupTotals {
  uint64_t hits = 0;
  uint64_t misses = 0;  // in flight included
  uint64_t bytes_read = 0;
};

inline LookupTotals TotalsOf(const ExpertStats& stats) {
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

}  // namespace moed
