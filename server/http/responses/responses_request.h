// /v1/responses: from its JSON to a request of the daemon.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/api/api_error.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/conversation.h"
#include "server/http/responses/input.h"

namespace moed::http {

struct ResponsesDraft : ConversationDraft {
  Input input;
  std::string instructions;
  std::string echo;  // members of a JSON object: what answers repeat of the request, defaults included
};

// Beside those of conversations and of answers.
std::span<const Parameter<ResponsesDraft>> ResponsesParameters();
// The daemon's fields that have another name here; Input knows those of messages.
std::span<const FieldName> ResponsesFieldNames();

// Of the body's text. INVALID_ARGUMENT about a parameter begins with it.
absl::StatusOr<ResponsesDraft> ReadResponses(const std::string& body);

}  // namespace moed::http
