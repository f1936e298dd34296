#include "server/http/inference/inference_server.h"

#include <utility>

#include "core/base/status.h"
#include "inference/v2.grpc.pb.h"
#include "server/http/inference/arrived_request.h"
#include "server/http/inference/encode.h"
#include "server/http/inference/infer_call.h"
#include "server/http/inference/infer_stream.h"
#include "server/http/inference/metadata.h"
#include "server/wire/call_guard.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/received_message.h"
#include "server/wire/rpc_server.h"

namespace moed::http {
namespace {

using inference::GRPCInferenceService;

constexpr size_t kMarginBytes = 64 << 10;  // of a message, beside its text
constexpr size_t kNameBytes = 256;

template <class Service>
using WithRawMethods =
    GRPCInferenceService::WithRawCallbackMethod_ServerLive<GRPCInferenceService::WithRawCallbackMethod_ServerReady<
        GRPCInferenceService::WithRawCallbackMethod_ModelReady<GRPCInferenceService::WithRawCallbackMethod_ServerMetadata<
            GRPCInferenceService::WithRawCallbackMethod_ModelMetadata<GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
                GRPCInferenceService::WithRawCallbackMethod_ModelStreamInfer<Service>>>>>>>;

// Messages come as bytes, so that what they would hold is known before they are parsed.
class InferenceService final : public WithRawMethods<GRPCInferenceService::Service> {
  using Bytes = grpc::ByteBuffer;
  using Context = grpc::CallbackServerContext;

 public:
  explicit InferenceService(InferenceParts parts) : parts_(std::move(parts)) {}

  grpc::ServerUnaryReactor* ServerLive(Context* context, const Bytes*, Bytes* response) override {
    inference::ServerLiveResponse answer;
    answer.set_live(true);
    return Reply(context, answer, response);
  }
  grpc::ServerUnaryReactor* ServerReady(Context* context, const Bytes*, Bytes* response) override {
    inference::ServerReadyResponse answer;
    answer.set_ready(parts_.daemon.serves());
    return Reply(context, answer, response);
  }
  grpc::ServerUnaryReactor* ServerMetadata(Context* context, const Bytes*, Bytes* response) override {
    if (const auto refusal = CallerRefusal(parts_, *context)) return Refuse(context, *refusal);
    return Reply(context, moed::http::ServerMetadata(), response);
  }
  grpc::ServerUnaryReactor* ModelReady(Context* context, const Bytes* request, Bytes* response) override {
    return OfModel<inference::ModelReadyRequest>(context, request, response, [this](const std::string&) {
      inference::ModelReadyResponse answer;
      answer.set_ready(parts_.daemon.serves());
      return answer;
    });
  }
  grpc::ServerUnaryReactor* ModelMetadata(Context* context, const Bytes* request, Bytes* response) override {
    return OfModel<inference::ModelMetadataRequest>(context, request, response,
                                                    [](const std::string& name) { return moed::http::ModelMetadata(name); });
  }
  grpc::ServerUnaryReactor* ModelInfer(Context* context, const Bytes* request, Bytes* response) override {
    return BeginInfer(parts_, context, request, response);
  }
  grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context* context) override { return BeginStream(parts_, context); }

 private:
  static grpc::ServerUnaryReactor* Reply(Context* context, const google::protobuf::MessageLite& answer, Bytes* response) {
    *response = ToByteBuffer(answer);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  static grpc::ServerUnaryReactor* Refuse(Context* context, const ApiError& error) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(InferenceStatus(error));
    return reactor;
  }

  // `answer`(name) of a request with a name and a version.
  template <class Request, class Answer>
  grpc::ServerUnaryReactor* OfModel(Context* context, const Bytes* message, Bytes* response, Answer answer) {
    static const MessageLimits limits(*Request::descriptor(),
                                      {{.path = "name", .bytes = kNameBytes}, {.path = "version", .bytes = kNameBytes}},
                                      /*unknown_bytes=*/kNameBytes);
    CountTaken(context->peer(), message->Length());
    if (const auto refusal = CallerRefusal(parts_, *context)) return Refuse(context, *refusal);
    Request request;
    absl::Status read = limits.Check(*message);
    Bytes bytes = *message;
    if (read.ok()) read = ParseMessage(bytes, request);
    if (!read.ok()) return Refuse(context, ErrorOf(read));
    if (const auto refusal = ModelRefusal(parts_.models, request.name(), request.version())) return Refuse(context, *refusal);
    return Reply(context, answer(request.name()), response);
  }

  const InferenceParts parts_;
};

}  // namespace

class InferenceServer::Impl {
 public:
  Impl(const InferenceServerOptions& options, Daemon& daemon, const ModelNames& models, AccessLog& log, const Tokens* tokens)
      : live_(options.limits), service_({daemon, models, log, tokens, live_}), daemon_(daemon) {
    quota_.Resize(options.limits.bytes);
  }
  ~Impl() { daemon_.OnServing(nullptr); }

  absl::Status Listen(const InferenceServerOptions& options) {
    RpcServerOptions limits;
    limits.max_message_bytes = static_cast<int>(options.message_bytes + kMarginBytes);
    limits.max_connections = options.limits.calls;
    limits.max_idle_ms = options.idle_seconds * 1000;
    limits.certificates = options.certificates;
    limits.health_service = GRPCInferenceService::service_full_name();
    MOED_ASSIGN_OR_RETURN(server_, RpcServer::Listen(options.listen, {&service_}, quota_, limits));
    call_guard_ = std::make_unique<CallGuard>(std::vector<Address>{server_->address()}, kOtherCalls + options.limits.calls,
                                              limits.max_streams, static_cast<int64_t>(options.limits.bytes));
    daemon_.OnServing([this](bool serves) { server_->SetServing(serves); });
    return absl::OkStatus();
  }

  std::string address() const { return server_->address().Text(); }

  void Drain() {
    daemon_.OnServing(nullptr);
    server_->SetServing(false);
    live_.Drain();
  }
  void Shutdown(std::chrono::system_clock::time_point deadline) { server_->Shutdown(deadline); }

 private:
  LiveCalls live_;
  InferenceService service_;
  Daemon& daemon_;
  grpc::ResourceQuota quota_{"inference"};  // gRPC's own buffers: as much again as the requests that are read
  std::unique_ptr<RpcServer> server_;       // the first that ends
  std::unique_ptr<CallGuard> call_guard_;
};

InferenceServer::InferenceServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
InferenceServer::~InferenceServer() = default;

absl::StatusOr<std::unique_ptr<InferenceServer>> InferenceServer::Listen(const InferenceServerOptions& options, Daemon& daemon,
                                                                         const ModelNames& models, AccessLog& log,
                                                                         const Tokens* tokens) {
  auto impl = std::make_unique<Impl>(options, daemon, models, log, tokens);
  MOED_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<InferenceServer>(new InferenceServer(std::move(impl)));
}

std::string InferenceServer::address() const { return impl_->address(); }
void InferenceServer::Drain() { impl_->Drain(); }
void InferenceServer::Shutdown(std::chrono::system_clock::time_point deadline) { impl_->Shutdown(deadline); }

}  // namespace moed::http
