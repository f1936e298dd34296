#include "server/http/openai/completions.h"

#include "server/http/api/endpoint.h"
#include "server/http/openai/completion_reply.h"
#include "server/http/openai/completion_request.h"
#include "server/http/openai/reply.h"

namespace moed::http {

void HandleCompletion(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerByModel<moe::v1::GenerateResponse>(
      daemon, models, exchange, {"cmpl-", OpenAiError}, ReadCompletion, MakeCompletionWriter,
      [](auto& stub, auto* context, const auto* request, auto* call) { stub.GenerateStream(context, request, call); },
      [](auto& stub, auto* context, const auto* request, auto* response, auto* call) {
        stub.Generate(context, request, response, call);
      });
}

}  // namespace moed::http
