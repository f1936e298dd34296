#include "server/rpc/inference_service.h"

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/rpc/chat_translation.h"
#include "server/rpc/generate_call.h"
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

// Generate and Score have the same prompt fields.
std::vector<FieldLimit> PromptLimits(const RequestLimits& limits) {
  const std::string remedy = limits.prompt_bytes < limits.text_bytes ? "no longer text fits the context (--max-context)"
                                                                     : "the server's --max-text-bytes allows more";
  return {{.path = "request_id", .bytes = Count(limits.name_bytes)},
          {.path = "text", .bytes = limits.prompt_bytes, .remedy = remedy},
          {.path = "token_ids.ids",
           .entries = Count(limits.prompt_tokens),
           .remedy = "no more fit the context (--max-context)",
           .name = "token_ids"}};
}

// Generate and Chat have the same fields for their answers.
void AddAnswerLimits(const RequestLimits& limits, std::vector<FieldLimit>& fields) {
  fields.push_back({.path = "sampling.logit_bias", .entries = Count(limits.logit_biases)});
  fields.push_back(
      {.path = "stopping.stop_strings", .entries = Count(limits.stop_strings), .bytes = Count(limits.stop_string_bytes)});
  fields.push_back({.path = "stopping.stop_token_ids", .entries = Count(limits.stop_tokens)});
  fields.push_back({.path = "format.json_schema", .bytes = limits.format_bytes});
  fields.push_back({.path = "format.regex", .bytes = limits.format_bytes});
}

std::vector<FieldLimit> GenerateLimits(const RequestLimits& limits) {
  std::vector<FieldLimit> fields = PromptLimits(limits);
  AddAnswerLimits(limits, fields);
  fields.push_back({.path = "session_id", .bytes = Count(limits.name_bytes)});
  return fields;
}

std::vector<FieldLimit> ChatLimits(const RequestLimits& limits) {
  const size_t name = Count(limits.name_bytes);
  std::vector<FieldLimit> fields = {
      {.path = "request_id", .bytes = name},
      {.path = "session_id", .bytes = name},
      {.path = "messages", .entries = Count(limits.messages)},
      {.path = "messages.role", .bytes = name},
      {.path = "messages.content", .entries = Count(limits.content_parts)},
      {.path = "messages.tool_calls", .entries = Count(limits.tool_calls)},
      {.path = "messages.tool_calls.id", .bytes = name},
      {.path = "messages.tool_calls.name", .bytes = name},
      {.path = "messages.tool_call_id", .bytes = name},
      {.path = "messages.name", .bytes = name},
      {.path = "tools", .entries = Count(limits.tools)},
      {.path = "tools.name", .bytes = name},
      {.path = "tool_choice.name", .bytes = name},
      {.path = "template_variables", .bytes = limits.variables_bytes},
  };
  for (const char* text : {"messages.content.text", "messages.reasoning", "messages.tool_calls.arguments", "tools.description",
                           "tools.parameters"}) {
    fields.push_back({.path = text, .bytes = limits.text_bytes, .remedy = "the server's --max-text-bytes allows more"});
  }
  AddAnswerLimits(limits, fields);
  return fields;
}

// gRPC would keep the message until the call's end.
std::shared_ptr<grpc::ByteBuffer> TakeMessage(const grpc::ByteBuffer* request) {
  auto taken = std::make_shared<grpc::ByteBuffer>();
  taken->Swap(const_cast<grpc::ByteBuffer*>(request));
  return taken;
}

// `answer(Request, model)`.
template <class Result, class Request, class AnswerFn>
Arrival<Result> Arrive(const grpc::ByteBuffer* request, const MessageLimits& limits, const CallEnvironment& environment,
                       AnswerFn answer) {
  const size_t most_name_bytes = Count(environment.limits.request.name_bytes);
  Arrival<Result> arrival;
  const auto message = TakeMessage(request);
  arrival.bytes = message->Length();
  arrival.fits = limits.Check(*message);
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
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response, const MessageLimits& limits,
                                         AnswerFn answer) {
  auto* reactor = new UnaryReactor<WorkerCall>(context, environment.live, response);
  reactor->Begin(
      environment, [&](auto& transport) { return std::make_shared<WorkerCall>(environment, method, transport); },
      [&](WorkerCall& call) {
        const RequestLimits& all = environment.limits.request;
        auto arrival = Arrive<Encoded, Request>(request, limits, environment,
                                                [&all, answer, tenant = call.tenant()](Request parsed, const LoadedModel& model) {
                                                  if constexpr (std::is_same_v<Request, DeleteSessionRequest>) {
                                                    parsed.set_session_id(SessionOf(tenant, parsed.session_id()));
                                                  }
                                                  return answer(std::move(parsed), model, all);
                                                });
        reactor->MatchSession(arrival);
        call.Start(std::move(arrival));
      });
  return reactor;
}

}  // namespace

InferenceService::InferenceService(const CallEnvironment& environment)
    : environment_(environment),
      generate_(*GenerateRequest::descriptor(), GenerateLimits(environment.limits.request),
                environment.limits.request.unknown_bytes),
      chat_(*ChatRequest::descriptor(), ChatLimits(environment.limits.request), environment.limits.request.unknown_bytes),
      score_(*ScoreRequest::descriptor(), PromptLimits(environment.limits.request), environment.limits.request.unknown_bytes),
      tokenize_(*TokenizeRequest::descriptor(),
                {{.path = "text",
                  .bytes = environment.limits.request.text_bytes,
                  .remedy = "the server's --max-text-bytes allows more"}},
                environment.limits.request.unknown_bytes),
      detokenize_(*DetokenizeRequest::descriptor(),
                  {{.path = "token_ids",
                    .entries = Count(environment.limits.request.prompt_tokens),
                    .remedy = "no sequence is longer (--max-context)"}},
                  environment.limits.request.unknown_bytes),
      delete_session_(*DeleteSessionRequest::descriptor(),
                      {{.path = "session_id", .bytes = Count(environment.limits.request.name_bytes)}},
                      environment.limits.request.unknown_bytes) {}

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
  return AnswerOnWorker<ChatRequest>(environment_, Method::kCountTokens, context, request, response, chat_, &moed::CountTokens);
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Answer<ScoreCall>(Method::kScore, context, request, response, &InferenceService::ArriveScore);
}

Arrival<PendingRequest> InferenceService::ArriveGenerate(const grpc::ByteBuffer* request) const {
  return Arrive<PendingRequest, GenerateRequest>(
      request, generate_, environment_,
      [](GenerateRequest parsed, const LoadedModel&) { return TranslateGenerate(std::move(parsed)); });
}

Arrival<PendingRequest> InferenceService::ArriveChat(const grpc::ByteBuffer* request) const {
  const RequestLimits& limits = environment_.limits.request;
  return Arrive<PendingRequest, ChatRequest>(
      request, chat_, environment_,
      [&limits](ChatRequest parsed, const LoadedModel& model) { return TranslateChat(std::move(parsed), model, limits); });
}

Arrival<PendingRequest> InferenceService::ArriveScore(const grpc::ByteBuffer* request) const {
  return Arrive<PendingRequest, ScoreRequest>(
      request, score_, environment_, [](ScoreRequest parsed, const LoadedModel&) { return TranslateScore(std::move(parsed)); });
}

template <class CallType, class Reactor>
Reactor* InferenceService::Begin(Reactor* reactor, Method method, const grpc::ByteBuffer* request, Reading reading) {
  reactor->Begin(
      environment_, [&](auto& transport) { return std::make_shared<CallType>(environment_, method, transport); },
      [&](CallType& call) {
        auto arrival = (this->*reading)(request);
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
  return AnswerOnWorker<TokenizeRequest>(environment_, Method::kTokenize, context, request, response, tokenize_, &moed::Tokenize);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerOnWorker<DetokenizeRequest>(environment_, Method::kDetokenize, context, request, response, detokenize_,
                                           &moed::Detokenize);
}

grpc::ServerUnaryReactor* InferenceService::DeleteSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  return AnswerOnWorker<DeleteSessionRequest>(environment_, Method::kDeleteSession, context, request, response, delete_session_,
                                              &moed::DeleteSession);
}

}  // namespace moed
