#include "server/http/responses/responses.h"

#include <string_view>
#include <utility>

#include "server/http/api/count_tokens.h"
#include "server/http/api/endpoint.h"
#include "server/http/openai/reply.h"
#include "server/http/responses/responses_reply.h"
#include "server/http/responses/responses_request.h"

namespace moed::http {

void HandleResponses(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerConversation(daemon, models, exchange, {"resp_", OpenAiError}, ReadResponses, MakeResponsesWriter);
}

void HandleInputTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  auto draft = ReadResponses(std::exchange(exchange->request().body, {}));
  if (!draft.ok()) return exchange->Reply(OpenAiError(ErrorOf(draft.status())));
  const auto error_of = [input = std::move(draft->input)](const grpc::Status& status) {
    return ErrorOf(status, ResponsesFieldNames(), [&input](std::string_view path) { return input.PlaceOf(path); });
  };
  CountTokens(daemon, models, exchange,
              {.model = std::move(draft->model),
               .conversation = std::move(draft->request),
               .error = OpenAiError,
               .error_of = error_of,
               .reply = [](int32_t tokens) -> HttpReply {
                 return {.body = Dumped({{"object", "response.input_tokens"}, {"input_tokens", tokens}})};
               }});
}

}  // namespace moed::http
