#include "server/http/parameter_list.h"

#include <span>

#include "core/base/status.h"
#include "server/http/anthropic/messages_request.h"
#include "server/http/api/answer_parameters.h"
#include "server/http/inference/request.h"
#include "server/http/openai/chat_request.h"
#include "server/http/openai/common_parameters.h"
#include "server/http/openai/completion_request.h"
#include "server/http/openai/conversation.h"
#include "server/http/responses/responses_request.h"

namespace moed::http {
namespace {

template <class Draft>
std::string Lines(std::string_view path, std::span<const Parameter<Draft>> table) {
  std::string lines;
  for (const Parameter<Draft>& parameter : table) lines += StrCat(path, " ", parameter.name, "\n");
  return lines;
}

}  // namespace

std::string ParameterList() {
  constexpr std::string_view kCompletions = "/v1/completions", kChat = "/v1/chat/completions", kResponses = "/v1/responses",
                             kInference = "/v2/models";
  return StrCat(Lines(kCompletions, CommonParameters()), Lines(kCompletions, CompletionParameters()),
                Lines(kChat, CommonParameters()), Lines(kChat, ConversationParameters()), Lines(kChat, ChatParameters()),
                Lines(kResponses, AnswerParameters()), Lines(kResponses, ConversationParameters()),
                Lines(kResponses, ResponsesParameters()), Lines("/v1/messages", MessagesParameters()),
                Lines(kInference, InferenceParameters()), Lines(kInference, AnswerParameters()), kInference, " ",
                kSamplingParameters, "\n");
}

}  // namespace moed::http
