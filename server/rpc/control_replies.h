// How the files of ControlService answer: who asks is checked, then what was asked; control_replies.cc has what they tell. For
// those files alone.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "core/base/byte_share.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "core/expert/memory_plan.h"
#include "server/rpc/control_service.h"
#include "server/wire/authorisation.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/error_details.h"
#include "server/wire/received_message.h"
#include "spdlog/spdlog.h"

namespace moed {

inline constexpr int kMaxHottest = 1000;
inline constexpr size_t kMostRequestBytes = 64 << 10;
// Answers that take no part of what all of them may take: the calls that may be open (call_guard.h) bound them, to 2 MiB.
inline constexpr size_t kSmallAnswerBytes = 4 << 10;

// An exception out of a handler would reach the client as UNIMPLEMENTED without a word.
template <class Body>
absl::Status Guarded(Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Internal("the request failed: ", error.what());
  }
}

template <class Response>
absl::Status Serialise(const Response& answer, grpc::ByteBuffer& bytes) {
  bool own = false;
  if (grpc::SerializationTraits<Response>::Serialize(answer, &bytes, &own).ok()) return absl::OkStatus();
  return Internal("the answer could not be serialised");
}

void FillMemory(const std::vector<MemoryPart>& parts, google::protobuf::RepeatedPtrField<moe::v1::MemoryPart>& out);
void FillProgress(const ModelChange::State& now, moe::v1::LoadModelProgress& out);

// A caller is asked for its token before anything is read of what it sent.
template <class Request>
absl::StatusOr<Request> ControlService::Admit(const grpc::CallbackServerContext& context, Scope scope,
                                              const grpc::ByteBuffer& bytes) const {
  CountTaken(context.peer(), bytes.Length());
  MOED_ASSIGN_OR_RETURN(const std::string caller, Authorise(parts_.tokens, context, scope));
  Request request;
  if (bytes.Length() > kMostRequestBytes) {
    return FieldError("request", bytes.Length(), " bytes, at most ", kMostRequestBytes, " are allowed");
  }
  grpc::ByteBuffer message = bytes;
  MOED_RETURN_IF_ERROR(ParseMessage(message, request));
  if (scope == Scope::kControl) {
    spdlog::info("{} from {}{}", Request::descriptor()->full_name(), context.peer(), caller.empty() ? "" : " by " + caller);
  }
  return request;
}

template <class Request, class Response, class Body>
absl::Status ControlService::Answer(const grpc::CallbackServerContext& context, Scope scope, const grpc::ByteBuffer& bytes,
                                    grpc::ByteBuffer& response, Body body) const {
  return Guarded([&]() -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const Request request, Admit<Request>(context, scope, bytes));
    Response answer;
    MOED_RETURN_IF_ERROR(body(request, answer));
    return Serialise(answer, response);
  });
}

// Holds its answer's part of what all may take, until it is sent.
class ReplyReactor final : public AnswerReactor {
 public:
  using AnswerReactor::AnswerReactor;
  void FinishWith(ByteShare& share, grpc::ByteBuffer& response, absl::Status status) {
    const size_t bytes = status.ok() ? response.Length() : 0;
    if (bytes > kSmallAnswerBytes && !(part_ = share.Take(bytes))) {
      response.Clear();
      status = RetryAfter(ResourceExhausted("the answer takes ", bytes,
                                            " bytes, of which others that their clients have not taken leave ", share.left()),
                          kRetrySeconds);
    }
    Send(ToGrpcStatus(status));
  }

 private:
  ByteShare::Held part_;
};

template <class Request, class Response, class Body>
grpc::ServerUnaryReactor* ControlService::Reply(Context* context, Scope scope, const Bytes* request, Bytes* response, Body body) {
  auto* reactor = new ReplyReactor(untaken_, context);
  reactor->FinishWith(answers_, *response, Answer<Request, Response>(*context, scope, *request, *response, body));
  return reactor;
}

template <class Request, class Response, class Begin>
grpc::ServerUnaryReactor* ControlService::ReplyLater(Context* context, const Bytes* request, Bytes* response, Begin begin) {
  auto* reactor = new AnswerReactor(untaken_, context);
  const auto finish = [reactor, response](const absl::StatusOr<Response>& answer) {
    reactor->Send(
        ToGrpcStatus(Guarded([&]() -> absl::Status { return answer.ok() ? Serialise(*answer, *response) : answer.status(); })));
  };
  const absl::Status begun = Guarded([&]() -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const Request asked, Admit<Request>(*context, Scope::kControl, *request));
    return begin(asked, finish);
  });
  if (!begun.ok()) reactor->Send(ToGrpcStatus(begun));
  return reactor;
}

}  // namespace moed
