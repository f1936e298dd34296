// The chat template of a Hugging Face folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moed {

// chat_template.jinja, or tokenizer_config.json's chat_template: a text, or a list of which "default" is taken. "" where there is
// none. INVALID_ARGUMENT naming the file for anything else.
absl::StatusOr<std::string> ReadChatTemplate(const std::string& folder);

}  // namespace moed
