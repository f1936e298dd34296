// Everything that is read at the moment of a scrape: engine, experts, memory, readiness, windowed rates.
#pragma once

#include <cstdint>
#include <vector>

#include "prometheus/collectable.h"
#include "server/metrics/model_counters.h"
#include "server/metrics/rate_sampler.h"
#include "server/rpc/server_state.h"

namespace moed {

// Thread-safe. All arguments outlive it. What depends on the model is exported, as zeros at first, from the moment it is loaded.
class ServerMetrics final : public prometheus::Collectable {
 public:
  ServerMetrics(const ServerState& state, const RateSampler& rates, const ModelCounters& counters)
      : state_(state), rates_(rates), counters_(counters) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  uint64_t MemoryBudget() const;

  const ServerState& state_;
  const RateSampler& rates_;
  const ModelCounters& counters_;
};

}  // namespace moed
