#include "server/http/openai/chat.h"

#include "server/http/api/endpoint.h"
#include "server/http/openai/chat_reply.h"
#include "server/http/openai/chat_request.h"
#include "server/http/openai/reply.h"

namespace moed::http {

void HandleChat(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerByModel<moe::v1::ChatResponse>(
      daemon, models, exchange, {"chatcmpl-", OpenAiError}, ReadChat, MakeChatWriter,
      [](auto& stub, auto* context, const auto* request, auto* reactor) { stub.ChatStream(context, request, reactor); },
      [](auto& stub, auto* context, const auto* request, auto* response, auto callback) {
        stub.Chat(context, request, response, std::move(callback));
      });
}

}  // namespace moed::http
