#include "server/http/api/count_tokens.h"

#include <utility>

#include "server/http/api/ask_daemon.h"

namespace moed::http {

void CountTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange, CountRequest request) {
  if (const auto refusal = models.Refusal(request.model)) return exchange->Reply(request.error(*refusal));
  request.conversation.set_request_id("count_" + exchange->request().id);
  AskDaemon<moe::v1::CountTokensResponse>(
      daemon, exchange, std::move(request.conversation),
      [](auto& stub, auto* context, const auto* conversation, auto* response, auto* call) {
        stub.CountTokens(context, conversation, response, call);
      },
      [error = request.error, error_of = std::move(request.error_of), reply = std::move(request.reply)](
          const grpc::Status& status, const moe::v1::CountTokensResponse& answer) {
        return status.ok() ? reply(answer.prompt_tokens()) : error(error_of(status));
      });
}

}  // namespace moed::http
