// GET /metrics: what Prometheus is told of requests, of this process and of its certificates.
#pragma once

#include "server/http/request_metrics.h"
#include "server/http/router.h"
#include "server/http/upstream/daemon.h"
#include "server/wire/certificates.h"

namespace moed::http {

// `certificates`: null in plain text. All must outlive the route.
Route MetricsRoute(RequestMetrics& metrics, const Daemon& daemon, const Certificates* certificates);

}  // namespace moed::http
