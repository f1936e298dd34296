// How texts are cut into words before BPE, by the name that a GGUF gives (tokenizer.ggml.pre): rows of one table. Patterns are
// those of the models' own tokenizer.json.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

struct GgufPreTokenizer {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;  // one cut after the other; each match is a word of its own
  bool gpt2_pattern = false;                   // and then GPT-2's
  bool composes = false;                       // Unicode NFC first
  bool ignore_merges = false;                  // a word that is a token is that token
  bool adds_bos = false;                       // where the metadata do not say
};

std::span<const GgufPreTokenizer> GgufPreTokenizers();
// INVALID_ARGUMENT lists the known ones.
absl::StatusOr<const GgufPreTokenizer*> PreTokenizerNamed(std::string_view name);

}  // namespace moed
