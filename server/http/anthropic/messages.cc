#include "server/http/anthropic/messages.h"

#include <utility>

#include "server/http/anthropic/error.h"
#include "server/http/anthropic/messages_reply.h"
#include "server/http/anthropic/messages_request.h"
#include "server/http/api/endpoint.h"

namespace moed::http {

void HandleMessages(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerConversation(daemon, models, exchange, {"msg_", AnthropicError}, ReadMessagesRequest, MakeMessagesWriter);
}

void HandleCountTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  auto draft = ReadCountRequest(std::exchange(exchange->request().body, {}));
  if (!draft.ok()) return exchange->Reply(AnthropicError(ErrorOf(draft.status())));
  if (const auto refusal = models.Refusal(draft->model)) return exchange->Reply(AnthropicError(*refusal));
  moe::v1::ChatRequest request = std::move(draft->request);
  request.set_request_id("count_" + exchange->request().id);
  auto call = std::make_shared<UnaryCall<moe::v1::CountTokensResponse>>(daemon.calls());
  call->Start(
      [exchange](const grpc::Status& status, const moe::v1::CountTokensResponse& answer) {
        if (!status.ok()) return exchange->Reply(AnthropicError(ErrorOf(status, MessagesFieldNames())));
        exchange->Reply({.body = Dumped({{"input_tokens", answer.prompt_tokens()}})});
      },
      [&](auto* context, auto* response, auto callback) {
        NameTrace(exchange->request().trace_parent, *context);
        PresentToken(exchange->request().token, *context);
        daemon.inference(request.ByteSizeLong()).async()->CountTokens(context, &request, response, std::move(callback));
      });
  exchange->OnGone([call] { call->Cancel(); });
}

}  // namespace moed::http
