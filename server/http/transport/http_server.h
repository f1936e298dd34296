// A listening address, its connections and the threads that serve them. Boost.Asio and Boost.Beast stay behind this header.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/address.h"
#include "server/http/transport/access_log.h"
#include "server/http/transport/handler.h"
#include "server/http/transport/limits.h"
#include "server/wire/certificates.h"

namespace moed::http {

struct HttpServerOptions {
  Address listen{"127.0.0.1", 8080};
  TransportLimits limits;
  const Certificates* certificates = nullptr;  // null: plain text
  int drain_delay_seconds = 2;
  int drain_seconds = 30;
};

class HttpServer {
 public:
  // Listens. `handler` and `log` must outlive the server. Errors name the address, or what
  // is wrong with the certificates.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(const HttpServerOptions& options, RequestHandler& handler,
                                                            AccessLog& log);
  ~HttpServer();

  std::string address() const;  // with the port that was bound

  // Serves until SIGTERM or SIGINT, and calls `on_hangup` at each SIGHUP. Then `on_ending` is called, and after
  // drain_delay_seconds `on_drain`: requests go on to be handled, and it returns when none is being answered or drain_seconds
  // more are over. What is left is ended as if its client had gone. A second signal ends the process at once.
  void Serve(std::function<void()> on_hangup, std::function<void()> on_ending, std::function<void()> on_drain);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed::http
