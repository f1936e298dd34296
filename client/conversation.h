// A conversation's file, as `moectl chat` saves it and `moectl render` reads it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/repeated_field.h"
#include "moe/v1/inference.pb.h"

namespace moed {

using ChatMessages = google::protobuf::RepeatedPtrField<moe::v1::ChatMessage>;

void AddMessage(ChatMessages& messages, const std::string& role, const std::string& text);

// {"messages": [{"role": ..., "content": ..., "reasoning_content": ...}]}. The file is whole or as it was before. Errors name it.
absl::Status SaveConversation(const std::string& path, const ChatMessages& messages);
// INVALID_ARGUMENT for what SaveConversation does not write, too.
absl::Status LoadConversation(const std::string& path, ChatMessages& messages);

}  // namespace moed
