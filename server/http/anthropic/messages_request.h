// /v1/messages: from its JSON to a request of the daemon.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/api/api_error.h"
#include "server/http/api/conversation.h"
#include "server/http/api/parameters.h"

namespace moed::http {

struct MessagesDraft : ConversationOptions {
  std::string system;
};

std::span<const Parameter<MessagesDraft>> MessagesParameters();
// The daemon's fields that have another name in this request.
std::vector<FieldName> MessagesFieldNames(const MessagesDraft& draft);

// Of the body's text. INVALID_ARGUMENT about a parameter begins with it.
absl::StatusOr<MessagesDraft> ReadMessagesRequest(const std::string& body);
// Of one whose tokens are counted: nothing is said of the answer.
absl::StatusOr<MessagesDraft> ReadCountRequest(const std::string& body);

}  // namespace moed::http
