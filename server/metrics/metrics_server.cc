#include "server/metrics/metrics_server.h"

#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "CivetServer.h"
#include "core/base/status.h"
#include "prometheus/text_serializer.h"

namespace moed {
namespace {

// A connection has a thread until its request is there: those that say nothing are closed soon, and many of them leave others
// a thread. One takes 17 KiB.
constexpr char kThreads[] = "16";
constexpr char kTimeoutMs[] = "2000";

struct HttpAnswer {
  int code = 200;
  std::string body;
};

const char* Reason(int code) { return code == 200 ? "OK" : code == 503 ? "Service Unavailable" : "Internal Server Error"; }

// Answers GET and HEAD of one path with what a function says.
class PathHandler final : public CivetHandler {
 public:
  explicit PathHandler(std::function<HttpAnswer()> answer) : answer_(std::move(answer)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override { return Send(connection, /*with_body=*/true); }
  bool handleHead(CivetServer*, mg_connection* connection) override { return Send(connection, /*with_body=*/false); }

 private:
  bool Send(mg_connection* connection, bool with_body) {
    HttpAnswer answer;
    try {
      answer = answer_();
    } catch (const std::exception& error) {
      answer = {500, StrCat(error.what(), "\n")};
    }
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: %zu\r\n"
              "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
              answer.code, Reason(answer.code), answer.body.size());
    if (with_body) mg_write(connection, answer.body.data(), answer.body.size());
    return true;
  }

  const std::function<HttpAnswer()> answer_;
};

HttpAnswer YesOrNo(bool yes, std::string_view what) {
  return yes ? HttpAnswer{200, "ok\n"} : HttpAnswer{503, StrCat(what, "\n")};
}

}  // namespace

std::string SerializeMetrics(const std::vector<std::shared_ptr<prometheus::Collectable>>& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    auto collected = collectable->Collect();
    families.insert(families.end(), std::make_move_iterator(collected.begin()), std::make_move_iterator(collected.end()));
  }
  return prometheus::TextSerializer().Serialize(families);
}

struct MetricsServer::Impl {
  explicit Impl(MetricsServerParts given)
      : parts(std::move(given)),
        metrics([this] {
          return HttpAnswer{200, SerializeMetrics(parts.collectables)};
        }),
        healthz([this] { return YesOrNo(parts.alive(), "the step loop stands still"); }),
        readyz([this] { return YesOrNo(parts.ready(), "loading or draining"); }) {}

  MetricsServerParts parts;
  Address address;
  PathHandler metrics;
  PathHandler healthz;
  PathHandler readyz;
  std::optional<CivetServer> server;  // last: ends before what its threads use
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const Address& address, MetricsServerParts parts) {
  if (absl::Status trial = TryToListen(address); !trial.ok()) {
    return absl::Status(trial.code(), StrCat("cannot listen on ", trial.message()));
  }
  auto impl = std::make_unique<Impl>(std::move(parts));
  const std::vector<std::string> options = {"listening_ports", address.Text(),       "num_threads",
                                            kThreads,          "request_timeout_ms", kTimeoutMs};
  try {
    impl->server.emplace(options);
  } catch (const std::exception& error) {  // also CivetException
    return absl::UnavailableError(StrCat("cannot listen on ", address.Text(), ": ", error.what()));
  }
  impl->server->addHandler("/metrics$", &impl->metrics);
  impl->server->addHandler("/healthz$", &impl->healthz);
  impl->server->addHandler("/readyz$", &impl->readyz);
  impl->address = address;
  impl->address.port = impl->server->getListeningPorts().front();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

const Address& MetricsServer::address() const { return impl_->address; }

}  // namespace moed
