// What the kernel says of this process.
#pragma once

#include <cstdint>
#include <vector>

#include "prometheus/collectable.h"

namespace moed {

struct ProcessUsage {
  uint64_t resident_bytes = 0;
  uint64_t swap_bytes = 0;
  uint64_t virtual_bytes = 0;
  double cpu_seconds = 0;
  double start_time_seconds = 0;  // since the epoch
  int threads = 0;
  int open_files = 0;
  uint64_t max_files = 0;
};
ProcessUsage ReadProcessUsage();

// process_* as Prometheus' client libraries name them, and what the process gave up.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  ProcessMetrics();
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace moed
