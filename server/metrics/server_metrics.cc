#include "server/metrics/server_metrics.h"

#include "server/process/metric_families.h"

namespace moed {

using prometheus::MetricType;

uint64_t ServerMetrics::MemoryBudget() const {
  const auto model = state_.loaded();
  return model == nullptr ? state_.server_info().memory_budget_bytes() : model->cache->plan().budget;
}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() const {
  MetricFamilies families;
  const moe::v1::ServerInfo info = state_.server_info();
  AddSample(AddFamily(families, "moe_build_info", "The build.", MetricType::Gauge), 1,
            {{"version", info.version()}, {"build", info.build()}});
  if (!info.compute_backend().empty()) {
    AddSample(AddFamily(families, "moe_compute_info", "The kernels that compute.", MetricType::Gauge), 1,
              {{"backend", info.compute_backend()}});
  }
  AddGauge(families, "moe_ready", "1: takes requests.", state_.ready());
  AddGauge(families, "moe_draining", "1: not ready any more; finishes what runs, and soon takes nothing new.", state_.draining());
  AddGauge(families, "moe_memory_budget_bytes", "The memory budget.", static_cast<double>(MemoryBudget()));
  AddCounter(families, "moe_lost_devices_total", "Devices that were lost, so that the model went on on the processor.",
             state_.lost_devices());

  const Rates rates = rates_.Over(kDefaultWindowNanos);
  AddGauge(families, "moe_expert_cache_hit_ratio", "Hits of all expert lookups of the last 10 seconds.", rates.hit_ratio);
  AddGauge(families, "moe_io_read_bytes_per_second", "Bytes of experts read, over the last 10 seconds.", rates.bytes_per_second);
  AddGauge(families, "moe_tokens_per_second", "Generated tokens, over the last 10 seconds.", rates.tokens_per_second);

  counters_.Collect(families);
  return families;
}

}  // namespace moed
