// The tokenizer of a GGUF file as a tokenizer.json that means the same: one compiler serves both kinds of checkpoints.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/pack/gguf/metadata.h"

namespace moed {

// tokenizer.ggml.model "gpt2": byte-level BPE with the pre-tokenizer that tokenizer.ggml.pre names; "llama": SentencePiece's BPE,
// whose merges follow from the scores. Control and user-defined tokens are added tokens; BOS and EOS are put around a text as
// add_bos_token and add_eos_token say. INVALID_ARGUMENT naming the key, its value and what is known.
absl::StatusOr<std::string> TokenizerJson(const GgufMetadata& metadata);

}  // namespace moed
