// /v1/chat/completions: from its JSON to a request of the daemon.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/api/api_error.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/conversation.h"

namespace moed::http {

struct ChatDraft : ConversationDraft {
  std::string_view max_tokens_name = "max_completion_tokens";  // the one of its two that was given
};

// Beside those of conversations.
std::span<const Parameter<ChatDraft>> ChatParameters();
// The daemon's fields that have another name in this request.
std::vector<FieldName> ChatFieldNames(const ChatDraft& draft);

// Where a field of the daemon stands in this request, where that is in the object "function" of a tool or a call; "" elsewhere.
std::string ChatFieldPlace(std::string_view path);

// Of the body's text. INVALID_ARGUMENT about a parameter begins with it.
absl::StatusOr<ChatDraft> ReadChat(const std::string& body);

}  // namespace moed::http
