#include "server/process/certificate_metrics.h"

#include "server/process/metric_families.h"

namespace moed {

std::vector<prometheus::MetricFamily> CertificateMetrics::Collect() const {
  MetricFamilies families;
  if (certificates_ == nullptr) return families;
  AddGauge(families, "moe_tls_certificate_end_seconds",
           "When the first of the certificates that are served with, or of the authorities of clients, expires, since the epoch.",
           static_cast<double>(certificates_->current()->end_seconds));
  return families;
}

}  // namespace moed
