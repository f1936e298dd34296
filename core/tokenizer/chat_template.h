// The chat template that travels with a compiled tokenizer: Jinja text that makes a prompt of a conversation.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

// The same tokenizer with this template instead of its own; with none for "". INVALID_ARGUMENT for a template that is not UTF-8,
// DATA_LOSS for a blob that is none.
absl::StatusOr<std::string> WithChatTemplate(std::string_view blob, std::string_view chat_template);
// "" where there is none. DATA_LOSS as above.
absl::StatusOr<std::string> ChatTemplateOf(std::string_view blob);

}  // namespace moed
