#include "server/metrics/connection_metrics.h"

#include "server/process/metric_families.h"

namespace moed {

std::vector<prometheus::MetricFamily> ConnectionMetrics::Collect() const {
  const ClosedConnections closed = closed_();
  MetricFamilies families;
  auto& family = AddFamily(families, "moe_closed_connections_total", "Connections of gRPC that the daemon closed, by cause.",
                           prometheus::MetricType::Counter);
  AddSample(family, static_cast<double>(closed.no_room), {{"cause", "no_room"}});
  AddSample(family, static_cast<double>(closed.too_much), {{"cause", "too_much"}});
  return families;
}

}  // namespace moed
