// Connections that the daemon closed itself, and why.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"

namespace moed {

// Since the start.
struct ClosedConnections {
  uint64_t no_room = 0;   // as soon as they came: --max-connections, or no descriptors were left
  uint64_t too_much = 0;  // for what they sent (docs/reliability.md, floods)
};

class ConnectionMetrics final : public prometheus::Collectable {
 public:
  // `closed`: thread-safe.
  explicit ConnectionMetrics(std::function<ClosedConnections()> closed) : closed_(std::move(closed)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<ClosedConnections()> closed_;
};

}  // namespace moed
