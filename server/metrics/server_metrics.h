// Everything that is read at the moment of a scrape: engine, experts, memory, readiness, windowed rates.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/v1/control.pb.h"
#include "prometheus/collectable.h"
#include "server/metrics/rate_sampler.h"
#include "server/rpc/server_state.h"

namespace moed {

// Thread-safe. All arguments outlive it. What depends on the model is exported, as zeros at first, from the moment it is loaded.
class ServerMetrics final : public prometheus::Collectable {
 public:
  ServerMetrics(const ServerState& state, const RateSampler& rates, const moe::v1::ServerInfo& info)
      : state_(state), rates_(rates), info_(info) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  uint64_t MemoryBudget() const;

  const ServerState& state_;
  const RateSampler& rates_;
  const moe::v1::ServerInfo& info_;
};

}  // namespace moed
