#include "server/http/anthropic/messages.h"

#include <utility>

#include "server/http/anthropic/error.h"
#include "server/http/anthropic/messages_reply.h"
#include "server/http/anthropic/messages_request.h"
#include "server/http/api/count_tokens.h"
#include "server/http/api/endpoint.h"

namespace moed::http {

void HandleMessages(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerConversation(daemon, models, exchange, {"msg_", AnthropicError}, ReadMessagesRequest, MakeMessagesWriter);
}

void HandleCountTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  auto draft = ReadCountRequest(std::exchange(exchange->request().body, {}));
  if (!draft.ok()) return exchange->Reply(AnthropicError(ErrorOf(draft.status())));
  auto names = MessagesFieldNames(*draft);
  CountTokens(daemon, models, exchange,
              {.model = std::move(draft->model),
               .conversation = std::move(draft->request),
               .error = AnthropicError,
               .error_of = [names = std::move(names)](const grpc::Status& status) { return ErrorOf(status, names); },
               .reply = [](int32_t tokens) -> HttpReply {
                 return {.body = Dumped({{"input_tokens", tokens}})};
               }});
}

}  // namespace moed::http
