// What endpoints that answer with the model do: read, ask the daemon, relay.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <utility>

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

// `read`: from the body's JSON to a draft with a `request`. `make_writer`: from the answer's identity and the draft. `stream`
// and `whole` are the daemon's calls: (stub, context, request, reactor) and (stub, context, request, response, callback).
template <class Response, class Read, class MakeWriter, class Stream, class Whole>
void AnswerByModel(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange, const AnswerForm& form,
                   Read read, MakeWriter make_writer, Stream stream, Whole whole) {
  auto draft = read(std::exchange(exchange->request().body, {}));
  if (!draft.ok()) return exchange->Reply(form.error(ErrorOf(draft.status())));
  if (const auto refusal = models.Refusal(draft->model)) return exchange->Reply(form.error(*refusal));
  const std::string session = draft->session.id;
  if (const absl::Status same = CheckSessionHeader(exchange->request(), session); !same.ok())
    return exchange->Reply(form.error(ErrorOf(same)));
  const AnswerIdentity identity = {form.id_prefix + exchange->request().id, draft->model, std::time(nullptr)};
  std::unique_ptr<AnswerWriter<Response>> writer = make_writer(identity, *draft);
  auto request = std::move(draft->request);
  const auto pass_on = [&session, &arrived = exchange->request()](grpc::ClientContext& context) {
    NameSession(session, context);
    NameTopic(std::string(arrived.Value(kTopicHeader)), context);
    NameTrace(arrived.trace_parent, context);
    PresentToken(arrived.token, context);
  };
  const bool streams = draft->stream;
  SetOptions(*std::move(draft), identity.id, request);
  auto& stub = *daemon.inference().async();
  if (streams) {
    StreamRelay<Response>::Start(daemon.calls(), exchange, std::move(writer), [&](auto* context, auto* reactor) {
      pass_on(*context);
      stream(stub, context, &request, reactor);
    });
  } else {
    RelayWhole<Response>(daemon.calls(), exchange, std::move(writer), [&](auto* context, auto* response, auto callback) {
      pass_on(*context);
      whole(stub, context, &request, response, std::move(callback));
    });
  }
}

// The same of conversations.
template <class Read, class MakeWriter>
void AnswerConversation(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange,
                        const AnswerForm& form, Read read, MakeWriter make_writer) {
  AnswerByModel<moe::v1::ChatResponse>(
      daemon, models, exchange, form, read, make_writer,
      [](auto& stub, auto* context, const auto* request, auto* reactor) { stub.ChatStream(context, request, reactor); },
      [](auto& stub, auto* context, const auto* request, auto* response, auto callback) {
        stub.Chat(context, request, response, std::move(callback));
      });
}

}  // namespace moed::http
