// HTTP for operators: /metrics, /healthz (the step loop turns), /readyz (takes requests).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/address.h"
#include "prometheus/collectable.h"

namespace moed {

struct MetricsServerParts {
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables;
  std::function<bool()> alive;  // thread-safe
  std::function<bool()> ready;
};

// What /metrics answers: Prometheus' text format.
std::string SerializeMetrics(const std::vector<std::shared_ptr<prometheus::Collectable>>& collectables);

// Thread-safe; has threads of its own. A connection that says nothing for two seconds is closed.
class MetricsServer {
 public:
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(const Address& address, MetricsServerParts parts);
  ~MetricsServer();

  const Address& address() const;  // with the port that was bound

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed
