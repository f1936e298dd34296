#include "server/http/responses/responses.h"

#include "server/http/api/endpoint.h"
#include "server/http/openai/reply.h"
#include "server/http/responses/responses_reply.h"
#include "server/http/responses/responses_request.h"

namespace moed::http {

void HandleResponses(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  AnswerConversation(daemon, models, exchange, {"resp_", OpenAiError}, ReadResponses, MakeResponsesWriter);
}

}  // namespace moed::http
