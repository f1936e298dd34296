// One request of the protocol over gRPC, from its message to the line in the log.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/api/api_error.h"
#include "server/http/api/model_names.h"
#include "server/http/inference/live_calls.h"
#include "server/http/inference/reply.h"
#include "server/http/transport/access_log.h"
#include "server/http/upstream/daemon.h"
#include "server/wire/tokens.h"

namespace moed::http {

// What the paths of its methods begin with.
inline constexpr std::string_view kInferenceService = "/inference.GRPCInferenceService/";

// What calls need; outlives them.
struct InferenceParts {
  Daemon& daemon;
  const ModelNames& models;
  AccessLog& log;
  const Tokens* tokens;  // null: everybody may ask
  LiveCalls& live;
};

// 401 where the caller has no token that is known, 403 where that lacks the scope "infer".
std::optional<ApiError> CallerRefusal(const InferenceParts& parts, const grpc::CallbackServerContext& context);

// "" where there is none; the first of several.
std::string_view MetadataValue(const grpc::CallbackServerContext& context, std::string_view name);

// Alive for as long as the request is answered. Used by one thread at a time.
class ArrivedRequest {
 public:
  // Reads the message, which is empty afterwards. `method`: of the service. Only during the constructor is `context` used.
  ArrivedRequest(const InferenceParts& parts, const grpc::CallbackServerContext& context, std::string_view method,
                 grpc::ByteBuffer& message, Responses responses);
  ~ArrivedRequest();  // writes the line
  ArrivedRequest(const ArrivedRequest&) = delete;

  const std::optional<ApiError>& refusal() const { return refusal_; }
  const ResponseNames& names() const { return names_; }
  const std::string& id() const { return record_.id; }  // made up here, in the log and for the daemon

  // Without a refusal:
  const moe::v1::GenerateRequest& message() const { return message_; }
  ResponseTexts& texts() { return *texts_; }
  // The call's deadline, its trace, and the session and the topic for proxies.
  void Describe(grpc::ClientContext& context) const;

  // For the log: what came of it.
  void OnReply(size_t bytes);
  void OnEnd(int http_status) { record_.status = http_status; }
  void OnGone() { record_.gone = true; }

 private:
  std::optional<ApiError> Read(const grpc::CallbackServerContext& context, grpc::ByteBuffer& message, Responses responses);

  const InferenceParts& parts_;
  const int64_t begun_nanos_;
  const std::chrono::system_clock::time_point deadline_;
  AccessRecord record_;
  std::optional<LiveCalls::Room> room_;
  ResponseNames names_;
  std::string session_;
  std::string topic_;
  std::string trace_parent_;
  const std::string token_;  // that the caller presented
  moe::v1::GenerateRequest message_;
  std::optional<ResponseTexts> texts_;
  std::optional<ApiError> refusal_;
};

}  // namespace moed::http
