// Prometheus families that are made anew at every scrape from a snapshot.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"

namespace moed {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

inline prometheus::MetricFamily& AddFamily(MetricFamilies& families, std::string name, std::string help,
                                           prometheus::MetricType type) {
  families.push_back({std::move(name), std::move(help), type, {}});
  return families.back();
}

// One sample of a counter or gauge.
inline void AddSample(prometheus::MetricFamily& family, double value, MetricLabels labels = {}) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  (family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
}

inline void AddGauge(MetricFamilies& families, std::string name, std::string help, double value) {
  AddSample(AddFamily(families, std::move(name), std::move(help), prometheus::MetricType::Gauge), value);
}
inline void AddCounter(MetricFamilies& families, std::string name, std::string help, double value) {
  AddSample(AddFamily(families, std::move(name), std::move(help), prometheus::MetricType::Counter), value);
}

}  // namespace moed
