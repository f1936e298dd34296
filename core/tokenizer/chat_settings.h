// What a conversation with the model needs beside its tokenizer, with which it travels. Opaque here.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

struct ChatSettings {
  std::string chat_template;      // Jinja text that makes a prompt of a conversation; "" where there is none
  std::string named_tokens;       // JSON: what templates call tokens, and their texts: {"bos_token": "<s>"}; or ""
  std::string sampling_defaults;  // JSON, of moe.v1.Sampling: {"temperature": 0.6, "top_k": 20}; or ""

  bool operator==(const ChatSettings&) const = default;
};

// The same tokenizer with these settings instead of its own. INVALID_ARGUMENT for a template that is not UTF-8, DATA_LOSS for a
// blob that is none.
absl::StatusOr<std::string> WithChatSettings(std::string_view blob, const ChatSettings& settings);
// DATA_LOSS as above.
absl::StatusOr<ChatSettings> ChatSettingsOf(std::string_view blob);

}  // namespace moed
