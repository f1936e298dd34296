#include "server/http/openai/chat.h"

#include "server/http/api/endpoint.h"
#include "server/http/openai/chat_reply.h"
#include "server/http/openai/chat_request.h"
#include "server/http/openai/reply.h"

namespace moed::http {

void HandleChat(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerConversation(daemon, models, exchange, {"chatcmpl-", OpenAiError}, ReadChat, MakeChatWriter);
}

}  // namespace moed::http
