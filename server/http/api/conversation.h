// What requests for an answer in a conversation come down to.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/http/api/answer.h"
#include "server/http/api/parameters.h"

namespace moed::http {

struct ConversationOptions : AnswerOptions {
  moe::v1::ChatRequest request;  // its messages and tools; the rest when it is sent
  Json template_variables = Json::object();
};

absl::Status ReadTemplateVariables(const Json& value, ConversationOptions& options);
absl::Status ReadReasoningEffort(const Json& value, ConversationOptions& options);
// Once all parameters are read.
void SetTemplateVariables(ConversationOptions& options);

// A message of the system, before all others.
void BeginWithSystem(std::string text, google::protobuf::RepeatedPtrField<moe::v1::ChatMessage>& messages);

}  // namespace moed::http
