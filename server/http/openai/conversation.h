// What requests of /v1/chat/completions and /v1/responses share: a conversation and its tools.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/http/api/answer.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/tools.h"

namespace moed::http {

struct ConversationDraft : AnswerOptions {
  moe::v1::ChatRequest request;  // its messages and tools; the rest when it is sent
  Json template_variables = Json::object();
  std::optional<std::vector<std::string>> allowed_tools;  // by their names; all where it is absent
  bool parallel_tool_calls = true;
};

// Those that both call the same.
std::span<const Parameter<ConversationDraft>> ConversationParameters();

absl::Status ReadReasoningEffort(const Json& value, ConversationDraft& draft);

// Once all parameters are read. The error begins with the parameter.
absl::Status FinishConversation(Layout layout, ConversationDraft& draft);

}  // namespace moed::http
