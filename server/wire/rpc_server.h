// One gRPC server on one address: TLS, limits, keepalive, health and reflection.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/address.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "server/wire/certificates.h"
#include "server/wire/connection_acceptor.h"

namespace moed {

struct RpcServerOptions {
  int max_message_bytes = (4 << 20) + (256 << 10);  // beyond the limits on fields, so that these can say what is too large
  int max_connections = 512;
  int max_streams = 100;       // calls of one connection; what comes beyond waits in the client
  int max_idle_ms = 300'000;   // a connection without calls is closed then
  int max_age_ms = 3'600'000;  // then clients connect anew, so that replicas share them; calls go on to their end
  int handshake_ms = 10'000;   // in which a new connection has shaken hands, TLS's included
  std::string health_service = "moe.v1.Inference";  // whose health is told, beside that of "" (the whole server)
  bool reflection = false;                          // grpc.reflection, open to everybody
  const Certificates* certificates = nullptr;       // null: plain text, as on the paths of unix sockets always
};

// Once, before anything of gRPC and on the only thread: gRPC 1.51 takes from the environment alone that it may read connections
// in pieces of less than 8 KiB. All calls of a piece begin before a CallGuard can see the first, and one may be 9 bytes.
void AllowSmallReads();

// Thread-safe. Not serving, as its health says, until SetServing(true).
class RpcServer {
 public:
  // Services outlive the server; there is one at least, or reflection. Errors name address and reason: the port is in use, the
  // address is not ours, ... Compressed messages are refused: what they become when they are unpacked is bounded by nothing.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Listen(const Address& address, const std::vector<grpc::Service*>& services,
                                                           grpc::ResourceQuota& quota, const RpcServerOptions& options);
  ~RpcServer();  // Shutdown at once

  const Address& address() const { return address_; }  // with the port that was bound
  void SetServing(bool serving);
  uint64_t refused_connections() const { return acceptor_->refused(); }
  // New calls fail; calls not over at the deadline are cancelled. Returns when all are over, however long that takes.
  void Shutdown(std::chrono::system_clock::time_point deadline);

 private:
  RpcServer(Address address, std::string health_service, std::unique_ptr<grpc::Server> server,
            std::unique_ptr<ConnectionAcceptor> acceptor)
      : address_(std::move(address)),
        health_service_(std::move(health_service)),
        server_(std::move(server)),
        acceptor_(std::move(acceptor)) {}

  const Address address_;
  const std::string health_service_;
  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<ConnectionAcceptor> acceptor_;
};

}  // namespace moed
