#include "server/http/request_metrics.h"

namespace moed::http {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::Histogram;

constexpr std::string_view kNoRoute = "other";

const Histogram::BucketBoundaries& Bounds() {
  static const Histogram::BucketBoundaries bounds = {.001, .005, .01, .025, .05, .1,  .25, .5,  1,    2.5, 5,
                                                     10,   20,   40,  60,   120, 240, 480, 960, 1920, 7680};
  return bounds;
}

prometheus::Counter& MakeCounter(prometheus::Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

RequestMetrics::RequestMetrics()
    : requests_(BuildCounter().Name("moe_http_requests_total").Help("Requests that ended.").Register(registry_)),
      first_byte_seconds_(BuildHistogram()
                              .Name("moe_http_first_byte_seconds")
                              .Help("From a request's first byte to its answer's.")
                              .Register(registry_)),
      seconds_(BuildHistogram()
                   .Name("moe_http_request_seconds")
                   .Help("From a request's first byte to its answer's last.")
                   .Register(registry_)),
      gone_(MakeCounter(registry_, "moe_http_clients_gone_total",
                        "Clients that left, or were given up, before their answer ended.")),
      request_bytes_(MakeCounter(registry_, "moe_http_request_bytes_total", "Of bodies of requests.")),
      reply_bytes_(MakeCounter(registry_, "moe_http_reply_bytes_total", "Of answers, on the wire.")),
      daemon_serves_(prometheus::BuildGauge()
                         .Name("moe_http_daemon_serves")
                         .Help("Whether the daemon serves: 1 or 0, as /readyz says.")
                         .Register(registry_)
                         .Add({})) {}

void RequestMetrics::Count(const AccessRecord& record, std::string_view route) {
  const std::string name(route.empty() ? kNoRoute : route);
  requests_.Add({{"route", name}, {"status", std::to_string(record.status)}}).Increment();  // the same series each time
  if (record.reply_bytes > 0) first_byte_seconds_.Add({{"route", name}}, Bounds()).Observe(record.first_byte_seconds);
  seconds_.Add({{"route", name}}, Bounds()).Observe(record.seconds);
  if (record.gone) gone_.Increment();
  request_bytes_.Increment(static_cast<double>(record.request_bytes));
  reply_bytes_.Increment(static_cast<double>(record.reply_bytes));
}

std::vector<prometheus::MetricFamily> RequestMetrics::Collect(bool daemon_serves) {
  daemon_serves_.Set(daemon_serves ? 1 : 0);
  return registry_.Collect();
}

}  // namespace moed::http
