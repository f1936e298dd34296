#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/duration.h"
#include "proto/metadata.h"

namespace moed {
namespace {

std::chrono::system_clock::time_point After(double seconds) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(seconds));
}

int Milliseconds(double seconds) { return static_cast<int>(std::clamp(seconds * 1e3, 1.0, 1e9)); }

double SecondsOf(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

// What google.rpc.BadRequest and RetryInfo add to a status that does not say it itself, as text.
std::string DetailText(const grpc::Status& status) {
  google::rpc::Status rich;
  if (status.error_details().empty() || !rich.ParseFromString(status.error_details())) return "";
  std::string text;
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&bad)) {
      for (const auto& violation : bad.field_violations()) {
        const std::string said = StrCat(violation.field(), ": ", violation.description());
        if (status.error_message().find(said) == std::string::npos) text += "\n  " + said;
      }
    } else if (detail.UnpackTo(&retry)) {
      text += StrCat("\n  retry after ", SecondsOf(retry.retry_delay()), " s");
    }
  }
  return text;
}

constexpr std::string_view kNoSuchCall =
    "the server does not know this call at this address; where it runs with --control-listen, what asks about the server itself "
    "(info, stats, drain and so on) goes to that address, and all else to its --listen";

// Absent: the server does not say that waiting helps.
std::optional<double> RetrySeconds(const grpc::Status& status) {
  google::rpc::Status rich;
  if (status.error_details().empty() || !rich.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&retry)) return SecondsOf(retry.retry_delay());
  }
  return std::nullopt;
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // gRPC says nothing of a service that an address does not have.
  const bool unknown = status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty();
  const std::string message = unknown ? std::string(kNoSuchCall) : StrCat(status.error_message(), DetailText(status));
  absl::Status told(static_cast<absl::StatusCode>(status.error_code()), message);
  const auto seconds = RetrySeconds(status);
  return seconds ? RetryAfter(std::move(told), *seconds) : told;
}

// gRPC ends the process at metadata with other characters.
absl::Status CheckToken(const std::string& address, const ClientOptions& options) {
  const auto prints = [](char c) { return c > ' ' && c <= '~'; };
  if (!std::all_of(options.token.begin(), options.token.end(), prints)) {
    return InvalidArgument("the token is none: it has printable ASCII without spaces");
  }
  if (options.token.empty() || !options.tls.ca.empty() || options.insecure || IsOfThisMachine(address)) return absl::OkStatus();
  return InvalidArgument("the token would be shown in plain text on the way to ", address,
                         ": give --tls-ca FILE, or --insecure where nobody listens on that way");
}

// gRPC would end a call whose strings are no UTF-8 with a status that names nothing.
absl::Status CheckText(const std::string& field, const std::string& text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return InvalidArgument(field == "text" ? "the text" : field, " is not UTF-8: byte ", valid, " starts no valid character");
}

absl::Status CheckTexts(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const bool repeated = field->is_repeated();
    const int values = repeated ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < values; ++i) {
      if (field->type() == field->TYPE_STRING) {
        MOED_RETURN_IF_ERROR(CheckText(
            field->name(), repeated ? reflection.GetRepeatedString(message, field, i) : reflection.GetString(message, field)));
      } else if (field->type() == field->TYPE_MESSAGE) {
        MOED_RETURN_IF_ERROR(
            CheckTexts(repeated ? reflection.GetRepeatedMessage(message, field, i) : reflection.GetMessage(message, field)));
      }
    }
  }
  return absl::OkStatus();
}

// What is no header's value stays away: gRPC would end the call.
void NameSession(grpc::ClientContext& context, const std::string& session_id) {
  if (FitsMetadata(session_id)) context.AddMetadata(kSessionIdKey, session_id);
}

}  // namespace

void Cancellation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : active_) context->TryCancel();
}

bool Cancellation::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

Cancellation::Registration::Registration(Cancellation* cancellation, grpc::ClientContext& context)
    : cancellation_(cancellation), context_(context) {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  cancellation_->active_.push_back(&context_);
  if (cancellation_->cancelled_) context_.TryCancel();
}

Cancellation::Registration::~Registration() {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  std::erase(cancellation_->active_, &context_);
}

Client::Client(std::shared_ptr<grpc::Channel> channel, const ClientOptions& options)
    : options_(options),
      channel_(std::move(channel)),
      inference_(moe::v1::Inference::NewStub(channel_)),
      control_(moe::v1::Control::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address, const ClientOptions& options) {
  MOED_RETURN_IF_ERROR(CheckServerAddress(address));
  MOED_RETURN_IF_ERROR(CheckToken(address, options));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_receive_bytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_seconds));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_seconds));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);                      // also during a long silent prefill
  if (IsOfThisMachine(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);   // of the environment: it is elsewhere
  const ClientTls tls = address.starts_with("unix:") ? ClientTls() : options.tls;  // a socket's path stays plain
  MOED_ASSIGN_OR_RETURN(const auto credentials, MakeChannelCredentials(tls, "--tls-", arguments));
  auto channel = grpc::CreateCustomChannel(address, credentials, arguments);
  if (!channel->WaitForConnected(After(options.connect_timeout_seconds))) {
    const std::string_view question = tls.ca.empty()
                                          ? "is moed running and listening there, and without TLS?"
                                          : "is moed running and listening there, with a certificate of --tls-ca for this name?";
    return absl::UnavailableError(
        StrCat("no server answers at ", address, " within ", options.connect_timeout_seconds, " s (", question, ")"));
  }
  return std::unique_ptr<Client>(new Client(std::move(channel), options));
}

void Client::Describe(grpc::ClientContext& context) const {
  if (!options_.token.empty()) context.AddMetadata("authorization", "Bearer " + options_.token);
  if (options_.call_timeout_seconds.has_value()) context.set_deadline(After(*options_.call_timeout_seconds));
}

template <class Response, class Call>
absl::StatusOr<Response> Client::Unary(Cancellation* cancellation, Call call, const std::string& session_id) {
  grpc::ClientContext context;
  NameSession(context, session_id);
  Describe(context);
  Response response;
  const Cancellation::Registration registration(cancellation, context);
  const grpc::Status status = call(&context, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

template <class Response, class Call>
absl::Status Client::Stream(absl::FunctionRef<bool(const Response&)> on_response, Cancellation* cancellation,
                            const std::string& session_id, Call call) {
  grpc::ClientContext context;
  NameSession(context, session_id);
  Describe(context);
  const Cancellation::Registration registration(cancellation, context);
  auto reader = call(&context);
  Response response;
  while (reader->Read(&response)) {
    if (!on_response(response)) {
      context.TryCancel();
      break;
    }
  }
  return FromGrpc(reader->Finish());
}

absl::Status Client::GenerateStream(const moe::v1::GenerateRequest& request,
                                    absl::FunctionRef<bool(const moe::v1::GenerateResponse&)> on_response,
                                    Cancellation* cancellation) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Stream<moe::v1::GenerateResponse>(on_response, cancellation, request.session_id(),
                                           [&](auto* context) { return inference_->GenerateStream(context, request); });
}

absl::StatusOr<moe::v1::GenerateResponse> Client::Generate(const moe::v1::GenerateRequest& request, Cancellation* cancellation) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::GenerateResponse>(
      cancellation, [&](auto* context, auto* out) { return inference_->Generate(context, request, out); }, request.session_id());
}

absl::Status Client::ChatStream(const moe::v1::ChatRequest& request,
                                absl::FunctionRef<bool(const moe::v1::ChatResponse&)> on_response, Cancellation* cancellation) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Stream<moe::v1::ChatResponse>(on_response, cancellation, request.session_id(),
                                       [&](auto* context) { return inference_->ChatStream(context, request); });
}

absl::StatusOr<moe::v1::ChatResponse> Client::Chat(const moe::v1::ChatRequest& request, Cancellation* cancellation) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::ChatResponse>(
      cancellation, [&](auto* context, auto* out) { return inference_->Chat(context, request, out); }, request.session_id());
}

absl::StatusOr<moe::v1::ScoreResponse> Client::Score(const moe::v1::ScoreRequest& request, Cancellation* cancellation) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::ScoreResponse>(cancellation,
                                       [&](auto* context, auto* out) { return inference_->Score(context, request, out); });
}

absl::StatusOr<moe::v1::TokenizeResponse> Client::Tokenize(const moe::v1::TokenizeRequest& request) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::TokenizeResponse>(nullptr,
                                          [&](auto* context, auto* out) { return inference_->Tokenize(context, request, out); });
}

absl::StatusOr<moe::v1::DetokenizeResponse> Client::Detokenize(const moe::v1::DetokenizeRequest& request) {
  return Unary<moe::v1::DetokenizeResponse>(
      nullptr, [&](auto* context, auto* out) { return inference_->Detokenize(context, request, out); });
}

absl::Status Client::DeleteSession(const std::string& session_id) {
  moe::v1::DeleteSessionRequest request;
  request.set_session_id(session_id);
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::DeleteSessionResponse>(
             nullptr, [&](auto* context, auto* out) { return inference_->DeleteSession(context, request, out); }, session_id)
      .status();
}

absl::StatusOr<moe::v1::ServerInfo> Client::GetServerInfo() {
  return Unary<moe::v1::ServerInfo>(nullptr, [&](auto* context, auto* out) { return control_->GetServerInfo(context, {}, out); });
}

absl::StatusOr<moe::v1::ModelInfo> Client::GetModelInfo() {
  return Unary<moe::v1::ModelInfo>(nullptr, [&](auto* context, auto* out) { return control_->GetModelInfo(context, {}, out); });
}

absl::StatusOr<moe::v1::Stats> Client::GetStats(double window_seconds) {
  moe::v1::GetStatsRequest request;
  *request.mutable_window() = DurationOf(window_seconds);
  return Unary<moe::v1::Stats>(nullptr, [&](auto* context, auto* out) { return control_->GetStats(context, request, out); });
}

absl::StatusOr<moe::v1::CacheState> Client::GetCacheState(int hottest) {
  moe::v1::GetCacheStateRequest request;
  request.set_hottest(hottest);
  return Unary<moe::v1::CacheState>(nullptr,
                                    [&](auto* context, auto* out) { return control_->GetCacheState(context, request, out); });
}

absl::StatusOr<moe::v1::ListSessionsResponse> Client::ListSessions(int most) {
  moe::v1::ListSessionsRequest request;
  request.set_most(most);
  return Unary<moe::v1::ListSessionsResponse>(
      nullptr, [&](auto* context, auto* out) { return control_->ListSessions(context, request, out); });
}

absl::Status Client::Abort(const std::string& request_id) {
  moe::v1::AbortRequest request;
  request.set_request_id(request_id);
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::AbortResponse>(nullptr, [&](auto* context, auto* out) { return control_->Abort(context, request, out); })
      .status();
}

absl::StatusOr<moe::v1::ResizeMemoryResponse> Client::ResizeMemory(uint64_t memory_budget_bytes) {
  moe::v1::ResizeMemoryRequest request;
  request.set_memory_budget_bytes(memory_budget_bytes);
  return Unary<moe::v1::ResizeMemoryResponse>(
      nullptr, [&](auto* context, auto* out) { return control_->ResizeMemory(context, request, out); });
}

absl::StatusOr<moe::v1::PinExpertsResponse> Client::PinExperts(const moe::v1::PinExpertsRequest& request) {
  return Unary<moe::v1::PinExpertsResponse>(
      nullptr, [&](auto* context, auto* out) { return control_->PinExperts(context, request, out); });
}

absl::StatusOr<moe::v1::PrefetchExpertsResponse> Client::PrefetchExperts(const moe::v1::PrefetchExpertsRequest& request) {
  return Unary<moe::v1::PrefetchExpertsResponse>(
      nullptr, [&](auto* context, auto* out) { return control_->PrefetchExperts(context, request, out); });
}

absl::StatusOr<uint64_t> Client::SaveResidency() {
  const auto answer = Unary<moe::v1::SaveResidencyResponse>(
      nullptr, [&](auto* context, auto* out) { return control_->SaveResidency(context, {}, out); });
  if (!answer.ok()) return answer.status();
  return answer->experts();
}

absl::StatusOr<uint64_t> Client::RestoreResidency() {
  const auto answer = Unary<moe::v1::RestoreResidencyResponse>(
      nullptr, [&](auto* context, auto* out) { return control_->RestoreResidency(context, {}, out); });
  if (!answer.ok()) return answer.status();
  return answer->experts();
}

absl::Status Client::SetLogLevel(const std::string& level) {
  moe::v1::SetLogLevelRequest request;
  request.set_level(level);
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Unary<moe::v1::SetLogLevelResponse>(
             nullptr, [&](auto* context, auto* out) { return control_->SetLogLevel(context, request, out); })
      .status();
}

absl::StatusOr<moe::v1::DrainResponse> Client::Drain() {
  return Unary<moe::v1::DrainResponse>(nullptr, [&](auto* context, auto* out) { return control_->Drain(context, {}, out); });
}

absl::Status Client::Undrain() {
  return Unary<moe::v1::UndrainResponse>(nullptr, [&](auto* context, auto* out) { return control_->Undrain(context, {}, out); })
      .status();
}

absl::Status Client::LoadModel(const moe::v1::LoadModelRequest& request,
                               absl::FunctionRef<bool(const moe::v1::LoadModelProgress&)> on_progress,
                               Cancellation* cancellation) {
  MOED_RETURN_IF_ERROR(CheckTexts(request));
  return Stream<moe::v1::LoadModelProgress>(on_progress, cancellation, "",
                                            [&](auto* context) { return control_->LoadModel(context, request); });
}

absl::StatusOr<moe::v1::UnloadModelResponse> Client::UnloadModel(const moe::v1::UnloadModelRequest& request,
                                                                 Cancellation* cancellation) {
  return Unary<moe::v1::UnloadModelResponse>(
      cancellation, [&](auto* context, auto* out) { return control_->UnloadModel(context, request, out); });
}

absl::Status Client::CheckHealth(const std::string& service) {
  auto stub = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  const auto answer = Unary<grpc::health::v1::HealthCheckResponse>(
      nullptr, [&](auto* context, auto* out) { return stub->Check(context, request, out); });
  if (!answer.ok()) return answer.status();
  if (answer->status() == grpc::health::v1::HealthCheckResponse::SERVING) return absl::OkStatus();
  return absl::UnavailableError("not serving");
}

}  // namespace moed
