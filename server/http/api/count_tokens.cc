#include "server/http/api/count_tokens.h"

#include <utility>

#include "server/http/api/passed_headers.h"
#include "server/http/upstream/call.h"

namespace moed::http {

void CountTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange, CountRequest request) {
  if (const auto refusal = models.Refusal(request.model)) return exchange->Reply(request.error(*refusal));
  request.conversation.set_request_id("count_" + exchange->request().id);
  const auto conversation = std::make_shared<const moe::v1::ChatRequest>(std::move(request.conversation));
  auto call = std::make_shared<UnaryCall<moe::v1::CountTokensResponse>>(daemon.calls());
  call->Start(
      [exchange, error = request.error, error_of = std::move(request.error_of), reply = std::move(request.reply)](
          const grpc::Status& status, const moe::v1::CountTokensResponse& answer) {
        exchange->Reply(status.ok() ? reply(answer.prompt_tokens()) : error(error_of(status)));
      },
      [&](auto* context, auto* response, auto* unary) {
        NameTrace(exchange->request().trace_parent, *context);
        PresentToken(exchange->request().token, *context);
        daemon.inference(conversation, *unary).async()->CountTokens(context, conversation.get(), response, unary);
      });
  exchange->OnGone([call] { call->Cancel(); });
}

}  // namespace moed::http
