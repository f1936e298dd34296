// tiktoken.model: the ranks of byte-level BPE, as Kimi K2 has them. How texts are cut before, and what the other tokens are, say
// its code and tokenizer_config.json.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

// A tokenizer.json that means the same. `settings` is the text of tokenizer_config.json, whose tokenizer_class has to be
// TikTokenTokenizer, Kimi's; its added tokens are among the 256 behind the ranks. INVALID_ARGUMENT for what is no such file.
absl::StatusOr<std::string> TiktokenTokenizer(std::string_view model, std::string_view settings);

}  // namespace moed
