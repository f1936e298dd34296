// What moed-http tells Prometheus of the requests that it answered. What they are to the model is the daemon's to tell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/http/transport/access_log.h"

namespace moed::http {

// Thread-safe.
class RequestMetrics {
 public:
  RequestMetrics();

  // `route`: the path as this program has it, or "" where it has none such. There are as many series as routes and statuses.
  void Count(const AccessRecord& record, std::string_view route);

  // `daemon_serves`: now.
  std::vector<prometheus::MetricFamily> Collect(bool daemon_serves);

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& first_byte_seconds_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Counter &gone_, &request_bytes_, &reply_bytes_;
  prometheus::Gauge& daemon_serves_;
};

}  // namespace moed::http
