#include "server/rpc/rpc_server.h"

#include <utility>

#include "core/base/status.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"

namespace moed {
namespace {

// A frozen client or a lost network is noticed within 30 s.
void SetChannelArguments(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second daemon on the port must fail, not steal calls
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, options.min_ping_interval_ms);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Listen(const Address& address, const std::vector<grpc::Service*>& services,
                                                             grpc::ResourceQuota& quota, const RpcServerOptions& options) {
  // gRPC does not say why it cannot listen: ask first.
  if (absl::Status trial = TryToListen(address); !trial.ok()) {
    return absl::Status(trial.code(), StrCat("cannot listen on ", trial.message()));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetChannelArguments(builder, options);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  int port = 0;
  builder.AddListeningPort(address.Text(), grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0)
    return absl::UnavailableError(StrCat("cannot listen on ", address.Text(), ": the port is in use"));
  Address bound = address;
  bound.port = port;
  std::unique_ptr<RpcServer> listening(new RpcServer(std::move(bound), std::move(server)));
  listening->SetServing(false);  // gRPC's own health service begins with SERVING
  return listening;
}

RpcServer::~RpcServer() { Shutdown(std::chrono::system_clock::now()); }

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus("moe.v1.Inference", serving);
}

void RpcServer::Shutdown(std::chrono::system_clock::time_point deadline) { server_->Shutdown(deadline); }

}  // namespace moed
