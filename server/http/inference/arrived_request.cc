#include "server/http/inference/arrived_request.h"

#include <exception>
#include <utility>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/trace_parent.h"
#include "proto/metadata.h"
#include "server/http/api/passed_headers.h"
#include "server/http/inference/metadata.h"
#include "server/http/inference/proto_request.h"
#include "server/http/transport/status_text.h"
#include "server/wire/authorisation.h"
#include "server/wire/connection_bytes.h"

namespace moed::http {
namespace {

// "ipv4:127.0.0.1:40000" is "127.0.0.1".
std::string ClientOf(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  const size_t begin = peer.find(':') + 1, end = peer.rfind(':');
  return end > begin ? peer.substr(begin, end - begin) : "";
}

}  // namespace

std::string_view MetadataValue(const grpc::CallbackServerContext& context, std::string_view name) {
  const auto found = context.client_metadata().find(grpc::string_ref(name.data(), name.size()));
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

std::optional<ApiError> CallerRefusal(const InferenceParts& parts, const grpc::CallbackServerContext& context) {
  const auto name = Authorise(parts.tokens, context, Scope::kInfer);
  return name.ok() ? std::nullopt : std::optional(ErrorOf(name.status()));
}

ArrivedRequest::ArrivedRequest(const InferenceParts& parts, const grpc::CallbackServerContext& context, std::string_view method,
                               grpc::ByteBuffer& message, Responses responses)
    : parts_(parts), begun_nanos_(Clock::Real().NowNanos()), deadline_(context.deadline()), token_(PresentedToken(context)) {
  record_.id = NewRequestId();
  if (const auto name = Authorise(parts.tokens, context, Scope::kInfer); name.ok()) record_.token = *name;
  if (context.client_metadata().count(kTraceParentKey) == 1) {
    trace_parent_ = ReadTraceParent(MetadataValue(context, kTraceParentKey));
  }
  record_.trace_id = TraceIdOf(trace_parent_);
  topic_ = std::string(MetadataValue(context, kTopicKey));
  record_.client = ClientOf(context);
  record_.method = "gRPC";
  record_.path = StrCat(kInferenceService, method);
  record_.request_bytes = message.Length();
  CountTaken(context.peer(), message.Length());
  names_.id = PeekId(message);
  try {  // which gRPC would swallow, and leave the client waiting
    refusal_ = Read(context, message, responses);
  } catch (const std::exception& error) {
    refusal_ = ApiError{.status = 500, .message = StrCat("the request could not be read: ", error.what())};
  }
  message.Clear();
  record_.status = refusal_ ? refusal_->status : 200;
}

ArrivedRequest::~ArrivedRequest() {
  record_.seconds = SecondsBetween(begun_nanos_, Clock::Real().NowNanos());
  parts_.log.Write(record_);
}

std::optional<ApiError> ArrivedRequest::Read(const grpc::CallbackServerContext& context, grpc::ByteBuffer& message,
                                             Responses responses) {
  auto room = parts_.live.Enter(message.Length());
  if (!room.ok()) return ErrorOf(room.status());
  room_.emplace(*std::move(room));
  auto draft = ReadModelInfer(message, responses);
  if (!draft.ok()) return ErrorOf(draft.status());
  names_ = {draft->model, draft->id};
  if (auto refusal = ModelRefusal(parts_.models, draft->model, "")) return refusal;
  session_ = draft->session.id;
  const auto said = context.client_metadata().equal_range(kSessionIdKey);
  for (auto at = said.first; at != said.second; ++at) {
    const absl::Status same = CheckSessionName({at->second.data(), at->second.size()}, session_);
    if (!same.ok()) return ErrorOf(same);
  }
  texts_.emplace(draft->asks_for_parts.value_or(true));
  message_ = std::move(draft->request);
  SetOptions(*std::move(draft), "infer-" + record_.id, message_);
  return std::nullopt;
}

void ArrivedRequest::Describe(grpc::ClientContext& context) const {
  context.set_deadline(deadline_);
  NameSession(session_, context);
  NameTopic(topic_, context);
  NameTrace(trace_parent_, context);
  PresentToken(token_, context);
}

void ArrivedRequest::OnReply(size_t bytes) {
  if (record_.reply_bytes == 0) record_.first_byte_seconds = SecondsBetween(begun_nanos_, Clock::Real().NowNanos());
  record_.reply_bytes += bytes;
}

}  // namespace moed::http
