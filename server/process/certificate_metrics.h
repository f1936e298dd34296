// Until when the certificates of --tls-cert and --tls-client-ca hold.
#pragma once

#include <vector>

#include "prometheus/collectable.h"
#include "server/wire/certificates.h"

namespace moed {

// Nothing in plain text.
class CertificateMetrics final : public prometheus::Collectable {
 public:
  explicit CertificateMetrics(const Certificates* certificates) : certificates_(certificates) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Certificates* const certificates_;  // null: plain text
};

}  // namespace moed
