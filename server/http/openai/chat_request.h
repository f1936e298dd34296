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

using ChatDraft = ConversationDraft;

// Beside those of conversations.
std::span<const Parameter<ChatDraft>> ChatParameters();
// The daemon's fields that have another name in this request.
std::vector<FieldName> ChatFieldNames(const ChatDraft& draft);

// Where a field of the daemon stands in this request, where that is in the object "function" of a tool or a call; "" elsewhere.
std::string ChatFieldPlace(std::string_view path);

// Of the body's text. INVALID_ARGUMENT about a parameter begins with it.
absl::StatusOr<ChatDraft> ReadChat(const std::string& body);

}  // namespace moed::http
