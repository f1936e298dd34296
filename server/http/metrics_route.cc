#include "server/http/metrics_route.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/base/version.h"
#include "prometheus/text_serializer.h"
#include "server/http/openai/reply.h"
#include "server/process/certificate_metrics.h"
#include "server/process/metric_families.h"
#include "server/process/process_metrics.h"

namespace moed::http {
namespace {

std::string MetricsText(MetricFamilies families, const ProcessMetrics& process, const Certificates* certificates) {
  AddSample(AddFamily(families, "moe_http_build_info", "The build.", prometheus::MetricType::Gauge), 1,
            {{"version", std::string(Version())}, {"build", std::string(BuildDetails())}});
  std::ranges::move(process.Collect(), std::back_inserter(families));
  std::ranges::move(CertificateMetrics(certificates).Collect(), std::back_inserter(families));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace

Route MetricsRoute(RequestMetrics& metrics, const Daemon& daemon, const Certificates* certificates) {
  return {"GET",
          "/metrics",
          false,
          OpenAiError,
          [&metrics, &daemon, certificates, process = ProcessMetrics()](const auto& exchange) {
            exchange->Reply({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                             .body = MetricsText(metrics.Collect(daemon.serves()), process, certificates)});
          },
          /*tensors=*/false,
          Scope::kObserve};
}

}  // namespace moed::http
