// What endpoints that answer with the model do: read, ask the daemon, relay.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/client_context.h"
#include "proto/metadata.h"
#include "server/http/api/answer.h"
#include "server/http/api/model_names.h"
#include "server/http/api/passed_headers.h"
#include "server/http/api/relay.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

// How an API names its answers and tells its errors.
struct AnswerForm {
  std::string id_prefix;
  HttpReply (*error)(const ApiError& error);
};

// What a request's headers say to the daemon.
struct PassedHeaders {
  std::string session, topic, trace, token;

  void AddTo(grpc::ClientContext& context) const {
    NameSession(session, context);
    NameTopic(topic, context);
    NameTrace(trace, context);
    PresentToken(token, context);
  }
};

// `read`: from the body's JSON to a draft with a `request` and, where the API takes several, `prompts`, which have what is not in
// it. `make_writer`: from the answer's identity and the draft. `stream` and `whole` are the daemon's calls: (stub, context,
// request, call) and (stub, context, request, response, call).
template <class Response, class Read, class MakeWriter, class Stream, class Whole>
void AnswerByModel(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange, const AnswerForm& form,
                   Read read, MakeWriter make_writer, Stream stream, Whole whole) {
  auto draft = read(std::exchange(exchange->request().body, {}));
  if (!draft.ok()) return exchange->Reply(form.error(ErrorOf(draft.status())));
  if (const auto refusal = models.Refusal(draft->model)) return exchange->Reply(form.error(*refusal));
  const HttpRequest& arrived = exchange->request();
  const PassedHeaders headers = {draft->session.id, std::string(arrived.Value(kTopicKey)), arrived.trace_parent, arrived.token};
  if (const absl::Status same = CheckSessionHeader(arrived, headers.session); !same.ok())
    return exchange->Reply(form.error(ErrorOf(same)));
  const AnswerIdentity identity = {form.id_prefix + arrived.id, draft->model, std::time(nullptr)};
  std::unique_ptr<AnswerWriter<Response>> writer = make_writer(identity, *draft);
  const bool streams = draft->stream && !draft->response.prompt_logprobs();  // which come with the end of an answer
  using Request = decltype(draft->request);
  std::vector<Request> prompts;
  Request common;
  if constexpr (requires { draft->prompts; }) {
    prompts = std::move(draft->prompts);
    common = std::move(draft->request);
  } else {
    prompts.push_back(std::move(draft->request));
  }
  const auto requests =
      std::make_shared<ChoiceRequests<Request>>(identity.id, std::move(prompts), std::move(common), *std::move(draft));
  if (!exchange->HoldRequest(requests->held_bytes() + writer->request_bytes()))
    return exchange->Reply(form.error(ErrorOf(absl::UnavailableError(kTooManyLargeRequests))));
  // Of a choice: what its call begins with. The request is made when it goes.
  const auto prepare = [=, &daemon](size_t choice, auto* context, auto* call) {
    headers.AddTo(*context);
    const auto request = std::make_shared<Request>();
    auto& stub = daemon.inference(
        requests->bytes(choice), [=] { *request = requests->Make(choice); }, *call);
    return std::pair(request, stub.async());
  };
  if (streams) {
    StreamRelay<Response>::Start(daemon.calls(), exchange, std::move(writer), requests->count(),
                                 [=](size_t choice, auto* context, auto* call) {
                                   const auto [request, stub] = prepare(choice, context, call);
                                   stream(*stub, context, request.get(), call);
                                   return request;
                                 });
  } else {
    WholeRelay<Response>::Start(daemon.calls(), exchange, std::move(writer), requests->count(),
                                [=](size_t choice, auto* context, auto* response, auto* call) {
                                  const auto [request, stub] = prepare(choice, context, call);
                                  whole(*stub, context, request.get(), response, call);
                                  return request;
                                });
  }
}

// The same of conversations.
template <class Read, class MakeWriter>
void AnswerConversation(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange,
                        const AnswerForm& form, Read read, MakeWriter make_writer) {
  AnswerByModel<moe::v1::ChatResponse>(
      daemon, models, exchange, form, read, make_writer,
      [](auto& stub, auto* context, const auto* request, auto* call) { stub.ChatStream(context, request, call); },
      [](auto& stub, auto* context, const auto* request, auto* response, auto* call) {
        stub.Chat(context, request, response, call);
      });
}

}  // namespace moed::http
