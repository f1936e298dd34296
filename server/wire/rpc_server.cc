#include "server/wire/rpc_server.h"

#include <climits>
#include <cstdlib>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/server_builder.h"
#include "server/wire/tls_credentials.h"

namespace moed {
namespace {

constexpr int kReadBytes = 256;  // of a connection at a time

// A frozen client or a lost network is noticed within 30 s.
void SetChannelArguments(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Pings are answered, however many. gRPC 1.51 would say of each one too many that it is, which takes 300 bytes for each of it.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.max_idle_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, options.max_age_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, INT_MAX);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options.handshake_ms);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);  // for the CallGuard
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
  // Windows do not grow with what a connection could carry: many that send fast would hold more than the quota before it is felt.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
}

// Linking the library of reflection puts it into every server, and so does asking for it once.
class WithoutReflection final : public grpc::ServerBuilderOption {
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const Address& address, const Certificates* certificates) {
  const bool encrypted = certificates != nullptr && address.path.empty();
  return encrypted ? MakeTlsCredentials(*certificates) : grpc::InsecureServerCredentials();
}

}  // namespace

void AllowSmallReads() {
  const char* given = std::getenv("GRPC_EXPERIMENTS");
  const std::string experiments = std::string(given == nullptr ? "" : given) + ",-tcp_read_chunks";  // the last word counts
  setenv("GRPC_EXPERIMENTS", experiments.c_str(), /*overwrite=*/1);
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Listen(const Address& address, const std::vector<grpc::Service*>& services,
                                                             grpc::ResourceQuota& quota, const RpcServerOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionAcceptor> acceptor,
                        ConnectionAcceptor::Listen(address, options.max_connections));
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  SetChannelArguments(builder, options);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  using ConnectionType = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> connections =
      builder.experimental().AddExternalConnectionAcceptor(ConnectionType::FROM_FD, CredentialsOf(address, options.certificates));
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return Internal("cannot listen on ", address.Text(), ": gRPC's server does not start");
  Address bound = address;
  bound.port = acceptor->port();
  std::unique_ptr<RpcServer> listening(
      new RpcServer(std::move(bound), options.health_service, std::move(server), std::move(acceptor)));
  listening->SetServing(false);  // gRPC's own health service begins with SERVING
  listening->acceptor_->Start([connections](int connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection;
    connections->HandleNewConnection(&parameters);
  });
  return listening;
}

RpcServer::~RpcServer() { Shutdown(std::chrono::system_clock::now()); }

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(health_service_, serving);
}

void RpcServer::Shutdown(std::chrono::system_clock::time_point deadline) {
  acceptor_->Stop();
  server_->Shutdown(deadline);
}

}  // namespace moed
