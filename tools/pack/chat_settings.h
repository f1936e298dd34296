// What a checkpoint says of conversations with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tokenizer/chat_settings.h"
#include "tools/pack/gguf/metadata.h"

namespace moed {

// Of a Hugging Face folder, whatever of it there is. The template: chat_template.jinja, or tokenizer_config.json's chat_template,
// a text, or a list of which "default" is taken. The tokens' names: tokenizer_config.json's. The sampling:
// generation_config.json's. INVALID_ARGUMENT for a value that is none.
absl::StatusOr<ChatSettings> ReadChatSettings(const std::string& folder);
// Of a GGUF file: its template, the tokens that its keys name, and the sampling of its keys general.sampling.*.
absl::StatusOr<ChatSettings> ReadChatSettings(const GgufMetadata& metadata);

// INVALID_ARGUMENT, with line and construct and what to do, for a template that moed cannot run. "" is none. Else what of it
// fails where it is reached: "line 12: No filter named 'x'".
absl::StatusOr<std::vector<std::string>> CheckChatTemplate(std::string_view chat_template);

}  // namespace moed
