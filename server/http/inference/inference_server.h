// The Open Inference Protocol over gRPC: an address of its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/address.h"
#include "server/http/api/model_names.h"
#include "server/http/inference/live_calls.h"
#include "server/http/transport/access_log.h"
#include "server/http/upstream/daemon.h"
#include "server/wire/certificates.h"
#include "server/wire/tokens.h"

namespace moed::http {

struct InferenceServerOptions {
  Address listen;
  size_t message_bytes = 0;  // of one request
  LiveCallLimits limits;
  int idle_seconds = 75;                       // for which a connection may be without calls
  const Certificates* certificates = nullptr;  // null: plain text
};

// Thread-safe. Its health (grpc.health.v1) is the daemon's.
class InferenceServer {
 public:
  // `tokens`: null: everybody may ask. All outlive the server. Errors name the address.
  static absl::StatusOr<std::unique_ptr<InferenceServer>> Listen(const InferenceServerOptions& options, Daemon& daemon,
                                                                 const ModelNames& models, AccessLog& log, const Tokens* tokens);
  ~InferenceServer();  // Shutdown at once

  std::string address() const;  // with the port that was bound

  // From now on no request is taken; streams without one end.
  void Drain();
  // Returns when all calls are over; those that are not at the deadline are cancelled.
  void Shutdown(std::chrono::system_clock::time_point deadline);

 private:
  class Impl;
  explicit InferenceServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed::http
