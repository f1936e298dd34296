// What requests of /v1/chat/completions and /v1/responses share: a conversation and its tools.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/http/api/conversation.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/tools.h"

namespace moed::http {

struct ConversationDraft : ConversationOptions {
  std::optional<std::vector<std::string>> allowed_tools;  // by their names; all where it is absent
  bool parallel_tool_calls = true;
};

// Those that both call the same.
std::span<const Parameter<ConversationDraft>> ConversationParameters();

// Once all parameters are read. The error begins with the parameter.
absl::Status FinishConversation(Layout layout, ConversationDraft& draft);

}  // namespace moed::http
