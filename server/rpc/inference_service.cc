#include "server/rpc/inference_service.h"

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/rpc/chat_translation.h"
#include "server/rpc/generate_call.h"
#include "server/rpc/inference_limits.h"
#include "server/rpc/reactors.h"
#include "server/rpc/request_translation.h"
#include "server/rpc/worker_call.h"

namespace moed {
namespace {

using moe::v1::ChatRequest;
using moe::v1::DeleteSessionRequest;
using moe::v1::DetokenizeRequest;
using moe::v1::GenerateRequest;
using moe::v1::ScoreRequest;
using moe::v1::TokenizeRequest;

size_t Count(int limit) { return static_cast<size_t>(limit); }

// gRPC would keep the message until the call's end.
std::shared_ptr<grpc::ByteBuffer> TakeMessage(const grpc::ByteBuffer* request) {
  auto taken = std::make_shared<grpc::ByteBuffer>();
  taken->Swap(const_cast<grpc::ByteBuffer*>(request));
  return taken;
}

using Limits = const MessageLimits InferenceLimits::*;

// `answer(Request, model)`.
template <class Result, class Request, class AnswerFn>
Arrival<Result> Arrive(const grpc::ByteBuffer* request, const Call& call, Limits limits, AnswerFn answer) {
  const size_t most_name_bytes = Count(call.limits().request.name_bytes);
  Arrival<Result> arrival;
  const auto message = TakeMessage(request);
  arrival.bytes = message->Length();
  if (call.model() != nullptr) arrival.fits = (call.model()->messages.get()->*limits).Check(*message);
  if constexpr (requires { Request::kRequestIdFieldNumber; }) {
    arrival.id = PeekString(*message, Request::kRequestIdFieldNumber, most_name_bytes);
  }
  if constexpr (requires { Request::kSessionIdFieldNumber; }) {
    arrival.session_id = PeekString(*message, Request::kSessionIdFieldNumber, most_name_bytes);
  }
  arrival.read = [message, answer](const LoadedModel& model) -> absl::StatusOr<Result> {
    Request parsed;
    MOED_RETURN_IF_ERROR(ParseMessage(*message, parsed));
    return answer(std::move(parsed), model);
  };
  return arrival;
}

// `answer(Request, model, limits)`.
template <class Request, class AnswerFn>
grpc::ServerUnaryReactor* AnswerOnWorker(const CallEnvironment& environment, Method method, grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response, Limits limits,
                                         AnswerFn answer) {
  auto* reactor = new UnaryReactor<WorkerCall>(context, environment.live, response);
  reactor->Begin(
      environment, request->Length(),
      [&](auto& transport) { return std::make_shared<WorkerCall>(environment, method, transport); },
      [&](WorkerCall& call) {
        auto arrival = Arrive<Encoded, Request>(request, call, limits, [answer, &call](Request parsed, const LoadedModel& model) {
          const RequestLimits& most = call.limits().request;
          if constexpr (std::is_same_v<Request, ChatRequest>) {
            return answer(std::move(parsed), model, most, [&] { return call.ended(); });
          } else {
            if constexpr (std::is_same_v<Request, DeleteSessionRequest>) {
              parsed.set_session_id(SessionOf(call.tenant(), parsed.session_id()));
            }
            return answer(std::move(parsed), model, most);
          }
        });
        reactor->MatchSession(arrival);
        call.Start(std::move(arrival));
      });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Answer<GenerateCall>(Method::kGenerate, context, request, response, &InferenceService::ArriveGenerate);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::GenerateStream(grpc::CallbackServerContext* context,
                                                                             const grpc::ByteBuffer* request) {
  return Stream<GenerateCall>(Method::kGenerateStream, context, request, &InferenceService::ArriveGenerate);
}

grpc::ServerUnaryReactor* InferenceService::Chat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return Answer<ChatCall>(Method::kChat, context, request, response, &InferenceService::ArriveChat);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::ChatStream(grpc::CallbackServerContext* context,
                                                                         const grpc::ByteBuffer* request) {
  return Stream<ChatCall>(Method::kChatStream, context, request, &InferenceService::ArriveChat);
}

grpc::ServerUnaryReactor* InferenceService::CountTokens(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return AnswerOnWorker<ChatRequest>(environment_, Method::kCountTokens, context, request, response, &InferenceLimits::chat,
                                     &moed::CountTokens);
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Answer<ScoreCall>(Method::kScore, context, request, response, &InferenceService::ArriveScore);
}

Arrival<PendingRequest> InferenceService::ArriveGenerate(const grpc::ByteBuffer* request, const Call& call) const {
  return Arrive<PendingRequest, GenerateRequest>(
      request, call, &InferenceLimits::generate,
      [](GenerateRequest parsed, const LoadedModel&) { return TranslateGenerate(std::move(parsed)); });
}

Arrival<PendingRequest> InferenceService::ArriveChat(const grpc::ByteBuffer* request, const Call& call) const {
  return Arrive<PendingRequest, ChatRequest>(
      request, call, &InferenceLimits::chat,
      [](ChatRequest parsed, const LoadedModel& model) { return TranslateChat(std::move(parsed), model, model.limits.request); });
}

Arrival<PendingRequest> InferenceService::ArriveScore(const grpc::ByteBuffer* request, const Call& call) const {
  return Arrive<PendingRequest, ScoreRequest>(
      request, call, &InferenceLimits::score,
      [](ScoreRequest parsed, const LoadedModel&) { return TranslateScore(std::move(parsed)); });
}

template <class CallType, class Reactor>
Reactor* InferenceService::Begin(Reactor* reactor, Method method, const grpc::ByteBuffer* request, Reading reading) {
  reactor->Begin(
      environment_, request->Length(),
      [&](auto& transport) { return std::make_shared<CallType>(environment_, method, transport); },
      [&](CallType& call) {
        auto arrival = (this->*reading)(request, call);
        reactor->Name(arrival);
        reactor->MatchSession(arrival);
        call.Start(std::move(arrival));
      });
  return reactor;
}

template <class CallType>
grpc::ServerUnaryReactor* InferenceService::Answer(Method method, grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response, Reading reading) {
  return Begin<CallType>(new UnaryReactor<CallType>(context, environment_.live, response), method, request, reading);
}

template <class CallType>
grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Stream(Method method, grpc::CallbackServerContext* context,
                                                                     const grpc::ByteBuffer* request, Reading reading) {
  return Begin<CallType>(new StreamReactor<CallType>(context, environment_.live), method, request, reading);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return AnswerOnWorker<TokenizeRequest>(environment_, Method::kTokenize, context, request, response, &InferenceLimits::tokenize,
                                         &moed::Tokenize);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerOnWorker<DetokenizeRequest>(environment_, Method::kDetokenize, context, request, response,
                                           &InferenceLimits::detokenize, &moed::Detokenize);
}

grpc::ServerUnaryReactor* InferenceService::DeleteSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  return AnswerOnWorker<DeleteSessionRequest>(environment_, Method::kDeleteSession, context, request, response,
                                              &InferenceLimits::delete_session, &moed::DeleteSession);
}

}  // namespace moed
