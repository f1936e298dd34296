// One gRPC server on one address: limits, keepalive, health and reflection.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "server/startup/address.h"

namespace moed {

struct RpcServerOptions {
  int max_message_bytes = 4 << 20;
  int min_ping_interval_ms = 5000;  // clients may ping that often, also during a long silent prefill; who does more is cut off
};

// Thread-safe. Not serving (health of "" and "moe.v1.Inference") until SetServing(true).
class RpcServer {
 public:
  // Services outlive the server. Errors name address and reason: the port is in use, the address is not ours, ...
  static absl::StatusOr<std::unique_ptr<RpcServer>> Listen(const Address& address, const std::vector<grpc::Service*>& services,
                                                           grpc::ResourceQuota& quota, const RpcServerOptions& options);
  ~RpcServer();  // Shutdown at once

  const Address& address() const { return address_; }  // with the port that was bound
  void SetServing(bool serving);
  // New calls fail; calls not over at the deadline are cancelled. Returns when all are over, however long that takes.
  void Shutdown(std::chrono::system_clock::time_point deadline);

 private:
  RpcServer(Address address, std::unique_ptr<grpc::Server> server) : address_(std::move(address)), server_(std::move(server)) {}

  const Address address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace moed
